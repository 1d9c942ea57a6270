-- Configuration values that differ between processes.
-- depends on: config
with processes_with_config as (select distinct process from config),
all_values as (
    select n.name, p.process, c.value from (select distinct name from config) n
    cross join processes_with_config p
    left join config c on c.name = n.name and c.process = p.process
)
select name, value, count(*) as n_processes,
       string_agg(process, ', ' order by process) as processes
from all_values where name in (
    select name from all_values group by name
    having count(distinct coalesce(value, '')) > 1
) group by name, value order by name, n_processes desc
