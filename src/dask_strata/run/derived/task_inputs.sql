-- Inputs of tasks: claimed by a definition, or seen when the task opened them. A path among the
-- arguments of a task that it, or each file in it, opened for writing only is an output.
-- depends on: attempts, claimed_inputs, file_opens
-- by key: attempts, claimed_inputs, file_opens
with opened as (
    select _key, uri, bool_and(mode = 'write') as only_written from file_opens group by _key, uri
), outputs as (
    select c._key, c.uri
    from (select distinct _key, uri from claimed_inputs where extractor = 'argument') c
    join opened o on o._key = c._key
     and (o.uri = c.uri or starts_with(o.uri, rtrim(c.uri, '/') || '/'))
    group by c._key, c.uri having bool_and(o.only_written)
)
select c._key, key, key_type, 'claimed' as kind, c.uri,
       case when o.uri is null then 'read' else 'write' end as mode, dataset, tree, first, last,
       unit, selection, columns, nbytes
from (select distinct on (_key, uri, dataset, tree, first, last, selection, columns) *
      from claimed_inputs) c
left join outputs o on o._key = c._key and o.uri = c.uri
union all by name
select o._key, o.key, o.key_type, a.attempt, 'seen' as kind, o.uri, o.mode, o.count
from file_opens o
left join attempts a on a._process = o.process and a._execution = o.execution
