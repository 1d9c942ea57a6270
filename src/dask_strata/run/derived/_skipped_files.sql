-- Files that coffea's Runner could not open, and left out.
-- depends on: _reported_exceptions, attempts, chunks, claimed_inputs
with inspections as (
    select c.dataset, c.uri, c.tree, c.key, a.* exclude (key), row_number() over (
               partition by c.key, c.key_type, c.uri order by a.attempt desc) as nth
    from claimed_inputs c
    left join attempts a on a.key = c.key and a.key_type = c.key_type
    where c.extractor = 'coffea.processor.executor.FileMeta'
)
select distinct on (t.dataset, t.uri, t.tree) t.dataset, t.uri, t.tree, t.key,
       coalesce(t.exception, k.exception) as exception
from inspections t
left join _reported_exceptions k on k.process = t._process and k.execution = t._execution
where nth = 1 and (t.typename = 'NoneType' or t.outcome is distinct from 'memory')
  and not exists (from chunks c where c.uri = t.uri)
order by t.dataset, t.uri, t.tree
