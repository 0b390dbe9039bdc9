"""The rank side and the user's SDK. Needs torch."""
