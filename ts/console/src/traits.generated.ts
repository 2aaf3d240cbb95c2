// Made from src/vaka/core/types/builtin_traits.json by `python -m scripts.ts_types`.

/** The arguments of a tool by what they name. */
export interface ToolTraits {
  paths?: string[];
  folders?: string[];
  command?: string;
  url?: string;
  summary?: string[];
  content?: string;
  replacement?: [string, string];
  replacements?: string;
}

export const BUILTIN_TRAITS: { readonly [tool: string]: ToolTraits | undefined } = {
  Bash: {"command": "command"},
  BashOutput: {"summary": ["task_id", "bash_id", "shell_id"]},
  BashStatus: {"summary": ["task_id", "bash_id", "shell_id"]},
  Edit: {"paths": ["file_path", "path"], "replacement": ["old_string", "new_string"]},
  Glob: {"folders": ["path"]},
  Grep: {"folders": ["path"]},
  KillTask: {"summary": ["task_id", "bash_id", "shell_id"]},
  MultiEdit: {"paths": ["file_path", "path"], "replacement": ["old_string", "new_string"], "replacements": "edits"},
  NotebookEdit: {"paths": ["notebook_path", "file_path", "path"]},
  Read: {"paths": ["file_path", "path"]},
  Skill: {"summary": ["command", "skill"]},
  SlashCommand: {"summary": ["command"]},
  Task: {"summary": ["subagent_type"]},
  TaskGet: {"summary": ["taskId", "task_id", "id"]},
  TaskUpdate: {"summary": ["taskId", "task_id", "id"]},
  WebFetch: {"url": "url"},
  WebSearch: {"summary": ["query"]},
  Write: {"paths": ["file_path", "path"], "content": "content"},
};
