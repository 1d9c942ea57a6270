-- Inputs of tasks: claimed by a definition, or seen when the task opened them.
-- depends on: attempts, claimed_inputs, file_opens
select _key, key, key_type, 'claimed' as kind, uri, 'read' as mode, dataset, tree, first, last,
       unit, selection, columns, nbytes
from (select distinct on (_key, uri, dataset, tree, first, last, selection, columns) *
      from claimed_inputs)
union all by name
select o._key, o.key, o.key_type, a.attempt, 'seen' as kind, o.uri, o.mode, o.count
from file_opens o
left join attempts a on a._process = o.process and a._execution = o.execution
