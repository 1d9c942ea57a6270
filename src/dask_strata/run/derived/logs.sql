-- Entries of logs: records of logging, warnings, and lines that workers wrote.
-- depends on: attempts, log_records, output_lines, processes
select l.time, l.process, p.role, l.worker, p.name, p.host, l.level, l.level_number, l.logger,
       l.kind as stream, l.message, l.exception, l._key, l.key, l.key_type,
       cast(null as bigint) as attempt, l.thread
from log_records l left join processes p using (process)
union all by name
select o.time, w.process, 'worker' as role, coalesce(o.worker, w.address) as worker, w.name, n.host,
       o.stream, o.line as message
from output_lines o left join processes n using (process)
left join processes w on w.pid = o.pid and w.host = n.host and w.role = 'worker'
order by time
