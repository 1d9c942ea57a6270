-- Addresses by name of imported workers, whose rows contain a name instead of an address.
-- depends on: processes
select name, any_value(address) as address from processes
where role = 'worker' and transport = 'import' and name is not null group by name
