"""A question in the notebook that locks its run until it is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets
import traitlets

from lab.facade import Run
from lab.learning.exercises.exercise import described
from lab.learning.progress import Learner
from lab.store.store import StoreError
from lab.widgets.explorer.latest_only_worker import Latest
from lab.widgets.explorer.run_in_background import taking_turns
from lab.widgets.explorer.status_text import error_words
from lab.widgets.modules import module, styles
from lab.widgets.question.answer import Answers, Choices, Number

_RUNNING = "Locked in. The processes are running…"


class Form(anywidget.AnyWidget):
    """The question itself. Hears {kind: "answer", value} and {kind: "again"}."""

    _esm = module("question.js")
    _css = styles()
    question = traitlets.Unicode("").tag(sync=True)
    choices: traitlets.List[str] = traitlets.List().tag(sync=True)
    number = traitlets.Dict({}).tag(sync=True)
    state = traitlets.Unicode("open").tag(sync=True)
    given = traitlets.Any(None).tag(sync=True)
    hint = traitlets.Unicode("").tag(sync=True)
    feedback = traitlets.Unicode("").tag(sync=True)


class Question(ipywidgets.VBox):
    """Asks, runs when answered, says who was right, and then shows the run. Answers are kept with the learner."""

    def __init__(
        self,
        key: str,
        question: str,
        answers: Answers,
        truth: Callable[[Run], Any],
        run: Callable[[], Run],
        then: Callable[[Run], ipywidgets.Widget],
        learner: Learner | None = None,
    ) -> None:
        self._key, self._answers, self._truth, self._run, self._then = key, answers, truth, run, then
        self._learner = learner or Learner()
        choices = list(answers.feedback) if isinstance(answers, Choices) else []
        scale = vars(answers) if isinstance(answers, Number) else {}
        self.form = Form(question=str(question), choices=choices, number=scale, hint=self._before())
        self.form.on_msg(lambda _, content, __: self._on_message(content))
        self._latest: Latest[Any] = Latest(self._reveal)
        super().__init__([self.form])

    def answer(self, given: Any) -> bool:
        """Locks the answer in and starts the run in a thread; False if it cannot be understood, or comes too late."""
        if self.form.state != "open":
            return False
        try:
            value = self._answers.read(given)
        except ValueError as error:
            self.form.hint = str(error)
            return False
        with self.form.hold_sync():
            self.form.state, self.form.given, self.form.hint = "running", value, _RUNNING
        self._latest.ask(value)
        return True

    def settle(self, timeout: float = 60.0) -> bool:
        """Waits until the run has been revealed, at most `timeout` seconds; whether it came to that."""
        return self._latest.settle(timeout)

    def ask_again(self) -> None:
        """Opens an answered question once more. The newest answer is the one on record."""
        if self.form.state != "answered":
            return
        with self.form.hold_sync():
            self.form.state, self.form.given, self.form.hint, self.form.feedback = "open", None, "", ""
        self.children = [self.form]

    def _on_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if message.get("kind") == "answer":
            self.answer(message.get("value"))
        elif message.get("kind") == "again":
            self.ask_again()

    def _reveal(self, value: Any) -> None:
        try:
            with taking_turns(threading.Event()):
                run = self._run()
            right, words = self._answers.judge(value, self._truth(run))
            self.children = [self.form, *self._shown(run)]
            self._learner.record("prediction", self._key, {"given": value, "right": right})
        except StoreError as error:
            self._notify("answered", f"This answer is not kept: {error}", words)
        except BaseException as error:  # an exit too: the learner shall read it, and may answer again
            self.children = [self.form]
            self._notify("open", f"The run did not end well: {error_words(error)}")
        else:
            self._notify("answered", "", words)

    def _shown(self, run: Run) -> list[ipywidgets.Widget]:
        found = None if self._then is None else self._then(run)
        if found is not None and not isinstance(found, ipywidgets.Widget):
            raise ValueError(f"`then` must return what `lab.view` and kin do, and returned {described(found)}.")
        return [] if found is None else [found]

    def _notify(self, state: str, hint: str, feedback: str = "") -> None:
        with self.form.hold_sync():
            self.form.state, self.form.hint, self.form.feedback = state, hint, feedback

    def _before(self) -> str:
        match self._learner.get("prediction", self._key):
            case {"given": given, "right": right}:
                return f"You answered this before: {given}, {'right' if right else 'not right'}."
        return ""
