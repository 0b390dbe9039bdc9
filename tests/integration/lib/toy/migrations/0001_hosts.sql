create table hosts (host_id text primary key, cordoned int not null);
