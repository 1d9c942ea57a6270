-- Workers in the process of each Darshan log: several, if they are threads of one process.
-- depends on: darshan_logs, processes
select log, worker from darshan_logs where worker is not null
union
select l.log, w.address
from darshan_logs l join processes p on p.process = l.process
join processes w on w.role = 'worker' and w.pid = p.pid and w.host = p.host
where w.address is not null and (w.start is null or w.start <= l.stop)
  and (w.stop is null or w.stop >= l.start)
