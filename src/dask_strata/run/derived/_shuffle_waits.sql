-- Time that tasks of a prefix waited while too many shards of P2P shuffles were left to send. These
-- tasks are the dependencies of the shuffle's barrier, or what such a dependency is an alias of.
-- depends on: _definitions, _keys, graph_edges, shuffles
with dependencies as (
    select substr(k.key, length('shuffle-barrier-') + 1) as shuffle, e._dependency
    from graph_edges e join _keys k on k._key = e._key
    where starts_with(k.key, 'shuffle-barrier-')
), aliased as (
    -- An alias runs no function, and has one dependency.
    select e._key, any_value(e._dependency) as _dependency
    from graph_edges e join _definitions d on d._key = e._key
    where d.function is null and e._key in (select _dependency from dependencies)
    group by e._key having count(distinct e._dependency) = 1
), senders as (
    select t.shuffle, any_value(d.prefix) as prefix
    from dependencies t left join aliased a on a._key = t._dependency
    join _definitions d on d._key = coalesce(a._dependency, t._dependency)
    group by t.shuffle
)
select coalesce(b.prefix, '(unknown)') as prefix, sum(s.wait_seconds) as seconds
from shuffles s join senders b on b.shuffle = s.shuffle
where s.wait_seconds > 0 group by 1
