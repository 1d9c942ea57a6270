"""Runs in a Python of its own with WfCommons: prints the contents of instances, as JSON.

Arguments: the schema, a folder for a recipe or an empty text, and instances.
"""

import contextlib
import importlib.util
import json
import logging
import sys
from pathlib import Path

from wfcommons.wfinstances.instance import Instance
from wfcommons.wfinstances.schema import SchemaValidator


def read(path: Path, schema: Path) -> dict:
    """Return the contents that WfCommons reads, and its errors and warnings."""
    validator = SchemaValidator(schema, logger=logging.getLogger("quiet"))
    try:
        validator.validate_instance(json.loads(path.read_text()))
    except RuntimeError as error:
        return {"refused": str(error), "errors": validator.errors}
    instance = Instance(path, schema_file=schema)
    workflow = instance.workflow
    tasks = {task_id: workflow.tasks[task_id] for task_id in workflow.nodes}
    return {
        "warnings": validator.warnings,
        "edges": sorted(map(list, workflow.edges)),
        "runtimes": {task_id: task.runtime for task_id, task in tasks.items()},
        "machines": {task_id: [m.name for m in task.machines] for task_id, task in tasks.items()},
        "cores": {task_id: task.cores for task_id, task in tasks.items()},
        "inputs": {
            task_id: {f.file_id: f.size for f in task.input_files}
            for task_id, task in tasks.items()
        },
        "makespan": instance.makespan,
        "levels": len(list(instance)),
    }


def cook(instances: Path, folder: Path, tasks: int) -> list:
    """Make a recipe of all instances in a folder; return the names of tasks that it generates."""
    from wfcommons import WorkflowGenerator
    from wfcommons.wfchef.chef import create_recipe

    create_recipe(instances, folder, "strata")
    init = folder / "wfchef_recipe_strata" / "__init__.py"
    found = importlib.util.spec_from_file_location(
        "wfchef_recipe_strata", init, submodule_search_locations=[str(init.parent)]
    )
    module = importlib.util.module_from_spec(found)
    sys.modules["wfchef_recipe_strata"] = module
    found.loader.exec_module(module)
    made = WorkflowGenerator(module.StrataRecipe.from_num_tasks(tasks)).build_workflow()
    return sorted(made.tasks[task_id].name for task_id in made.nodes)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    schema, recipe, *paths = map(Path, sys.argv[1:])
    with contextlib.redirect_stdout(sys.stderr):
        answer = [read(path, schema) for path in paths]
        if recipe.name:
            answer = cook(paths[0].parent, recipe, 20)
    sys.stdout.write(json.dumps(answer))
