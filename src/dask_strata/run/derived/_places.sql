-- Process, host and pid of each attempt: those of its execution, or of the worker that was connected
-- at its address then.
-- depends on: attempts, processes, workers
-- by key: attempts
select a.attempt, any_value(a._key) as _key, any_value(coalesce(a._process, w.process)) as process,
       any_value(coalesce(p.host, w.host)) as host, any_value(p.pid) as pid
from attempts a
left join workers w on w.worker = a.worker
 and (w.start is null or a.stop is null or w.start <= a.stop)
 and (w.stop is null or a.start is null or w.stop >= a.start)
left join processes p on p.process = coalesce(a._process, w.process)
group by a.attempt
