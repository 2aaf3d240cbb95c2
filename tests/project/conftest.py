from tests.runtime.conftest import folder as folder
