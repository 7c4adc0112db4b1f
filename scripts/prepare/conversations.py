"""The forms of a line of JSON that users bring, and the templates that make text of a conversation.

A line becomes an Example: its text, which parts of it are replies (with their end tokens), and where a completion starts; or,
tokenised already, ids and labels.
"""

import dataclasses
import json

from prepare.files import Problem

ROLES = ("system", "developer", "user", "assistant", "tool")
SHARE_GPT = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system", "tool": "tool"}
# The published prompt of the Alpaca data (github.com/tatsu-lab/stanford_alpaca), which trained models expect to the letter.
ALPACA = {True: "Below is an instruction that describes a task, paired with an input that provides further context. "
                "Write a response that appropriately completes the request.",
          False: "Below is an instruction that describes a task. Write a response that appropriately completes the request."}


@dataclasses.dataclass
class Example:
    text: str = ""
    replies: list = dataclasses.field(default_factory=list)  # (start, end) in characters, end tokens included
    completion: int | None = None  # where it starts
    plain: bool = False  # not of a conversation: the tokenizer adds what belongs around a text
    ids: list | None = None
    labels: list | None = None


class Text:
    """Text that grows, and what of it is marked."""

    def __init__(self):
        self.parts, self.length, self.replies = [], 0, []

    def add(self, text, is_reply=False):
        if is_reply:
            self.replies.append((self.length, self.length + len(text)))
        self.parts.append(text)
        self.length += len(text)


class Llama3:
    """The conversations of Llama 3.2; `trims`: as its own template, else as the variant that keeps texts as they are."""

    def __init__(self, date, trims):
        self.date, self.trims = date, trims

    def render(self, messages, add_generation_prompt=False):
        messages = list(messages)
        text = Text()
        own = self.content(messages.pop(0)) if messages and messages[0]["role"] in ("system", "developer") else ""
        text.add("<|begin_of_text|>")
        text.add(self.header("system") + f"Cutting Knowledge Date: December 2023\nToday Date: {self.date}\n\n{own}<|eot_id|>")
        for message in messages:
            role = message["role"]
            text.add(self.header({"tool": "ipython", "developer": "system"}.get(role, role)))
            text.add((self.call(message) if message.get("tool_calls") else self.content(message)) + "<|eot_id|>",
                     is_reply=role == "assistant")
        if add_generation_prompt:
            text.add(self.header("assistant"))
        return Example("".join(text.parts), text.replies)

    @staticmethod
    def header(role):
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n"

    def content(self, message):
        return message["content"].strip() if self.trims else message["content"]

    @staticmethod
    def call(message):
        calls = message["tool_calls"]
        if len(calls) != 1:
            raise Problem(f"{len(calls)} tool calls in one message: this template takes one")
        function = calls[0].get("function", calls[0])
        return json.dumps({"name": function["name"], "parameters": function["arguments"]}, ensure_ascii=False)


class Jinja:
    """A checkpoint's own template. It does not say which parts are replies: they are found by markers."""

    def __init__(self, source, variables, date):
        try:
            import jinja2.sandbox
        except ImportError as error:
            raise Problem("a checkpoint's template needs Python's Jinja2: pip install Jinja2==3.1.6", code=5) from error

        def refuse(message):
            raise Problem(f"the template refuses it: {message}")
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                                   extensions=["jinja2.ext.loopcontrols"])
        environment.globals.update(raise_exception=refuse, strftime_now=lambda style: date)
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        self.error = jinja2.TemplateError
        try:
            self.template = environment.from_string(source)
        except self.error as error:
            raise Problem(f"the chat template is wrong: {error}") from error
        self.variables = {**variables, "date_string": date}

    def render(self, messages, add_generation_prompt=False):
        try:
            return Example(self.template.render(messages=messages, add_generation_prompt=add_generation_prompt, **self.variables))
        except self.error as error:
            raise Problem(f"the chat template refuses it: {error}") from error


def checked_messages(value):
    if not isinstance(value, list) or not value:
        raise Problem("messages must be a list of at least one message")
    for number, message in enumerate(value):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise Problem(f"message {number} needs a role of {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str) and not (message["role"] == "assistant" and message.get("tool_calls")):
            raise Problem(f"message {number} needs content, a text")
        if message.get("thinking"):
            raise Problem(f"message {number} has thinking, which no template here renders")
    return value


def of_share_gpt(value):
    if not isinstance(value, list) or not all(isinstance(turn, dict) and turn.get("from") in SHARE_GPT for turn in value):
        raise Problem(f"conversations must be a list of turns with from = {', '.join(SHARE_GPT)} and value")
    return checked_messages([{"role": SHARE_GPT[turn["from"]], "content": turn.get("value")} for turn in value])


def of_completion(line, template):
    prompt, completion = line["prompt"], line.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        return Example(prompt + completion, completion=len(prompt), plain=True)
    whole = template.render(checked_messages(prompt) + checked_messages(completion))
    before = template.render(prompt, add_generation_prompt=True).text
    if not whole.text.startswith(before):
        raise Problem("the template renders the prompt otherwise where the completion follows")
    whole.completion = len(before)
    return whole


def of_instruction(line):
    texts = {name: line.get(name) or "" for name in ("instruction", "input", "output")}
    if not all(isinstance(text, str) for text in texts.values()) or not texts["output"]:
        raise Problem("instruction, input and output must be texts, output not empty")
    given = f"\n\n### Input:\n{texts['input']}" if texts["input"] else ""
    prompt = f"{ALPACA[bool(given)]}\n\n### Instruction:\n{texts['instruction']}{given}\n\n### Response:\n"
    return Example(prompt + texts["output"], completion=len(prompt), plain=True)


def of_ids(line):
    ids, labels = line["input_ids"], line.get("labels")
    labels = ids if labels is None else labels
    good = all(isinstance(values, list) and all(type(value) is int for value in values) for values in (ids, labels))
    if not good or len(ids) != len(labels) or not ids or min(ids) < 0:
        raise Problem("input_ids and labels must be lists of whole numbers of one length, ids from 0")
    return Example(ids=ids, labels=labels)


def parse(line, template):
    """The Example of a line. Raises Problem saying what is wrong with it."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Problem(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Problem("not a JSON object")
    if "messages" in found:
        return template.render(checked_messages(found["messages"]))
    if "conversations" in found:
        return template.render(of_share_gpt(found["conversations"]))
    if "prompt" in found:
        return of_completion(found, template)
    if "instruction" in found:
        return of_instruction(found)
    if "input_ids" in found:
        return of_ids(found)
    if isinstance(found.get("text"), str):
        return Example(found["text"], plain=True)
    raise Problem("none of messages, conversations, prompt and completion, instruction and output, text, input_ids is there")


def marked_by(ids, response, instruction):
    """Whether each token is of a reply: behind the tokens `response`, up to the next tokens `instruction`."""
    marks, inside, at = [False] * len(ids), False, 0
    while at < len(ids):
        if ids[at:at + len(response)] == response:
            inside, at = True, at + len(response)
        elif ids[at:at + len(instruction)] == instruction:
            inside, at = False, at + len(instruction)
        else:
            marks[at] = inside
            at += 1
    return marks

