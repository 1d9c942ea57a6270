-- Keys of the tasks whose rows the scheduler's recorder has: of a recording of one client's tasks,
-- these are the client's, while workers record the rows of all tasks.
-- depends on: graph_tasks, present_tasks, scheduler_transitions
select distinct _key from (
    select _key from scheduler_transitions union all by name select _key from graph_tasks
    union all by name select _key from present_tasks
) where _key is not null
