-- Chunks that definitions of tasks claim. A claim in steps has no entries: only the open file
-- contains how many a step has.
-- A task that had finished when the recording began, and did not run again, has none in this run.
-- depends on: attempts, claimed_inputs, present_tasks
-- by key: attempts, claimed_inputs, present_tasks
select any_value(_key) as _key, key, key_type, uri, parse_filename(uri) as file,
       any_value(dataset) as dataset,
       tree, case unit when 'entries' then first end as first,
       case unit when 'entries' then last end as last,
       bool_or(coalesce(extractor, '') like 'coffea.processor.%') as of_runner
from claimed_inputs anti join (
    from present_tasks anti join attempts using (key, key_type)
    where state in ('memory', 'erred', 'released')
) using (key, key_type)
where ((unit = 'entries' and first is not null) or (unit = 'steps' and tree is not null))
group by key, key_type, uri, file, tree, unit, claimed_inputs.first, claimed_inputs.last
