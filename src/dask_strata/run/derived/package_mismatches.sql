-- Versions of packages, and of Python, that differ between processes.
-- depends on: packages, processes
with installed as (
    select process, name, version from packages
    union all by name select process, 'python' as name, python as version from processes
), processes_with_packages as (select distinct process from packages),
all_versions as (
    select n.name, p.process, i.version from (select distinct name from installed) n
    cross join processes_with_packages p
    left join installed i on i.name = n.name and i.process = p.process
)
select name, version, count(*) as n_processes,
       string_agg(process, ', ' order by process) as processes
from all_versions where name in (
    select name from all_versions group by name
    having count(distinct coalesce(version, '')) > 1
) group by name, version order by name, n_processes desc
