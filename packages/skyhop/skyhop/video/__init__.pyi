from skyhop.video.playing import Sessions as Sessions
from skyhop.video.playing import play as play
from skyhop.video.playing import rate_trace as rate_trace
