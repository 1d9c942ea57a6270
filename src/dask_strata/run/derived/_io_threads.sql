-- Threads in the process of each Darshan log that run no tasks: the recorder's, and the event
-- loop's. Several Dask servers may share a process.
-- depends on: darshan_logs, process_threads, processes
select distinct l.log, t.thread, t.purpose
from darshan_logs l join processes p on p.process = l.process
join processes o on o.process = p.process or (o.pid = p.pid and o.host = p.host
    and (o.start is null or o.start <= l.stop) and (o.stop is null or o.stop >= l.start))
join process_threads t on t.process = o.process
where t.thread is not null
