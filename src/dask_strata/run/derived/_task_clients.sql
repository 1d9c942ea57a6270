-- Clients whose submissions contained a task, or that requested it before the recording, for each
-- life of a key, and the span that it belongs to. The first client is unknown if several had requested
-- the task before the recording.
-- depends on: _transitions, graph_tasks, present_tasks, submissions
-- by key: _transitions, graph_tasks, present_tasks
with known as (
    select g._key, s.client, epoch_ns(s.time) as t, false as present, null as submitted, g.span
    from graph_tasks g join submissions s on s.submission = g.submission
    union all
    select p._key, unnest(coalesce(string_split(p.clients, ', '), [null])), epoch_ns(p.time), true,
           p.submitted, g.span
    from present_tasks p left join (
        select _key, any_value(span) as span from graph_tasks
        where submission is null and span is not null group by _key
    ) g on g._key = p._key
), again as (
    select distinct _key from _transitions where life > 1
), ends as (
    select _key, life, epoch_ns(time) as t from _transitions
    where finish_state = 'forgotten' and _key in (from again)
), placed as (
    select *, 1 as life from known where _key not in (from again)
    union all
    select k.*, coalesce(e.life, 0) + 1
    from (select * from known where _key in (from again)) k
    asof left join ends e on e._key = k._key and k.t >= e.t
), by_client as (
    select _key, life, client, min(t) as t, bool_or(present) as present,
           max(submitted) as submitted, arg_min(span, t) as span
    from placed group by _key, life, client
)
select _key, life, bool_or(present) as present, max(submitted) as submitted,
       case when not bool_or(present) then arg_min(client, t)
            when count(*) filter (present) = 1 then any_value(client) filter (present) end as client,
       string_agg(client, ', ' order by t, client) as clients,
       arg_min(span, t) as span
from by_client group by _key, life
