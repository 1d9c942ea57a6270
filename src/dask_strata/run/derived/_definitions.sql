-- The last known definition of each key: prefix, group, function and submission.
-- depends on: graph_tasks, key_prefixes, scheduler_transitions
-- by key: graph_tasks, key_prefixes, scheduler_transitions
with recorded as (
    select _key, prefix, "group", function, submission, seq from graph_tasks
    union all by name
    select distinct _key, prefix, "group" from scheduler_transitions
    where prefix is not null
    union all by name select _key, prefix from key_prefixes
)
select _key, any_value(prefix) as prefix, any_value("group") as "group",
       arg_max(function, seq) as function, arg_max(submission, seq) as submission
from recorded group by _key
