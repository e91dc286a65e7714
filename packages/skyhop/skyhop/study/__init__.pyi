from skyhop.study.plan import Study as Study
from skyhop.study.plan import load_study as load_study
from skyhop.study.results import Results as Results
from skyhop.study.running import FailedRun as FailedRun
from skyhop.study.running import StudyRun as StudyRun
from skyhop.study.running import run_study as run_study
