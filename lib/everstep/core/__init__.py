"""Pure vocabulary shared by every package: decisions, ids, time, ports, errors, formulas."""
