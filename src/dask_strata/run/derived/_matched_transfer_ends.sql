-- Pairs of an incoming and an outgoing end that are the same transfer: by their order, or, where
-- the order does not match, the nearest in time.
-- depends on: _numbered_transfer_ends
with incoming as (select * from _numbered_transfer_ends where "end" = 'incoming'),
outgoing as (select * from _numbered_transfer_ends where "end" = 'outgoing'),
by_order as (
    select i.id as incoming, o.id as outgoing, i.source, i.destination, i.content,
           i.t0 <= o.t1 + i.tolerance and o.t0 <= i.t1 + i.tolerance as near
    from incoming i full outer join outgoing o using (source, destination, content, nth)
), same_order as (
    -- Every nth transfer of these keys is near the nth one of the other end.
    select source, destination, content from by_order where content is not null
    group by all having bool_and(coalesce(near, false))
), other_incoming as (
    select i.* from incoming i anti join same_order e using (source, destination, content)
), candidates as (
    select incoming, outgoing, 0 as gap from by_order
    join same_order using (source, destination, content)
    -- Otherwise the ends that are nearest in time match.
    union all
    select i.id, o.id, abs(i.t0 - o.t0)
    from other_incoming i asof join outgoing o
      on o.source = i.source and o.destination = i.destination and o.content = i.content
     and i.t0 >= o.t0
    where i.t0 <= o.t1 + i.tolerance
    union all
    select i.id, o.id, abs(i.t0 - o.t0)
    from other_incoming i asof join outgoing o
      on o.source = i.source and o.destination = i.destination and o.content = i.content
     and i.t0 <= o.t0
    where o.t0 <= i.t1 + i.tolerance
)
select incoming, outgoing from candidates
qualify row_number() over (partition by incoming order by gap, outgoing) = 1
    and row_number() over (partition by outgoing order by gap, incoming) = 1
