"""From a recipe to a package: the plan, each step's execution, and what is found out of a build.

`plan` lists the steps, `plan_execution` builds one and keeps its artifact, `agreement` compares the
recipe with its model file first, and `opened_package` opens what came out.
"""
