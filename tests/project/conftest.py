from tests.cli.conftest import ctrl_c as ctrl_c
from tests.cli.conftest import shell as shell
from tests.runtime.conftest import folder as folder
