-- Sections, counters and columns that tasks reported with the functions of `metrics`.
-- depends on: attempts, reports
-- by key: attempts, reports
select a.attempt, r._key, r.key, r.key_type, r.name, r.kind, r.value, r.count
from reports r
left join attempts a on a._process = r.process and a._execution = r.execution
where r.kind in ('section', 'counter', 'column')
