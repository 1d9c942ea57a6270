-- Batch job of each recorded process, from its variables. PBS appends a server to the number.
-- depends on: job
select process,
       max(case when source = 'PBS_JOBID' then split_part(value, '.', 1) else value end)
           filter (name = 'job.id') as job,
       max(value) filter (name = 'launcher' and value in ('slurm', 'pbs', 'lsf', 'flux', 'oar',
                                                          'cobalt', 'sge', 'htcondor')) as system,
       max(value) filter (name = 'job.name') as name,
       max(value) filter (name = 'job.queue') as queue,
       max(value) filter (name = 'job.account') as account,
       max(value) filter (name = 'job.nodes') as nodes,
       max(try_cast(value as bigint)) filter (name = 'job.node-count') as n_nodes,
       max(try_cast(value as double)) filter (name = 'job.time-limit') as time_limit_seconds
from job group by process having count(*) filter (name = 'job.id') > 0
