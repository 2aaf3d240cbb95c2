from tests.cli.conftest import ctrl_c as ctrl_c
from tests.cli.conftest import shell as shell
from tests.runtime.conftest import every_store as every_store
from tests.server.conftest import scripted as scripted
from tests.server.conftest import serve as serve
