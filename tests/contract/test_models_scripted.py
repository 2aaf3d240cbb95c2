"""The scripted model keeps every promise of a model, and so do the models of ``vaka.testing``."""

from collections.abc import Callable

import pytest

from vaka.core.ports.model import Chunk, Model, Prompt
from vaka.models.scripted import Scripted
from vaka.testing.models import Answer, ChaosModel, FunctionModel, ModelContract, RecordingModel, ScriptedModel, drain


class TestScripted(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[Answer], Model]:
        return lambda answer: Scripted([answer | {"repeat": True}])


class TestScriptedModel(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[Answer], Model]:
        return ScriptedModel


class TestRecording(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[Answer], Model]:
        return lambda answer: RecordingModel(ScriptedModel(answer))


class TestFunction(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[Answer], Model]:
        def model(answer: Answer) -> Model:
            async def fn(prompt: Prompt) -> Answer:
                return answer

            return FunctionModel(fn)

        return model


class TestFunctionOfChunks(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[Answer], Model]:
        def model(answer: Answer) -> Model:
            async def fn(prompt: Prompt) -> list[Chunk]:
                return await drain(ScriptedModel(answer), prompt)

            return FunctionModel(fn)

        return model


class TestChaosOnAGoodLine(ModelContract):
    """Split, doubled and delayed, but never cut: still the same answer."""

    @pytest.fixture(params=range(5))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[Answer], Model]:
        return lambda answer: ChaosModel(ScriptedModel(answer), seed=request.param, cut=0, error=0)
