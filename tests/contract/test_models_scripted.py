"""The model contract for the scripted model and the models of ``vaka.testing``."""

from collections.abc import Callable

import pytest

from vaka.core.ports.model import Chunk, Model, Prompt
from vaka.models.scripted import Scripted
from vaka.testing.models import (
    ChaosModel,
    FunctionModel,
    ModelContract,
    RecordingModel,
    ScriptedModel,
    ScriptLine,
    drain_stream,
)


class TestScripted(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[ScriptLine], Model]:
        return lambda answer: Scripted([answer | {"repeat": True}])


class TestScriptedModel(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[ScriptLine], Model]:
        return ScriptedModel


class TestRecording(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[ScriptLine], Model]:
        return lambda answer: RecordingModel(ScriptedModel(answer))


class TestFunction(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[ScriptLine], Model]:
        def model(answer: ScriptLine) -> Model:
            async def fn(prompt: Prompt) -> ScriptLine:
                return answer

            return FunctionModel(fn)

        return model


class TestFunctionOfChunks(ModelContract):
    @pytest.fixture
    def answering(self) -> Callable[[ScriptLine], Model]:
        def model(answer: ScriptLine) -> Model:
            async def fn(prompt: Prompt) -> list[Chunk]:
                return await drain_stream(ScriptedModel(answer), prompt)

            return FunctionModel(fn)

        return model


class TestChaosOnAGoodLine(ModelContract):
    """Chunks are split, doubled and delayed, but never cut."""

    @pytest.fixture(params=range(5))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[ScriptLine], Model]:
        return lambda answer: ChaosModel(ScriptedModel(answer), seed=request.param, cut=0, error=0)
