//! Congestion controls in Python, for the simulator: `skyhop.data.python_cc` reads them, and here they hear of ACKs.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use skyhop_cc::bindings::{FLAG_ECE, SK_PACING_NEEDED, TCP_INFINITE_SSTHRESH};
use skyhop_cc::{
    CcError, CongestionControl, Controller, RateSample, Registry, SK_PACING_NONE, Setup, TcpSock,
};
use skyhop_model::CongestionState;
use skyhop_record::{FileError, Piece, Sink};

use crate::errors::{Fallible, run_error};

pub(crate) const READER: &str = "skyhop.data.python_cc";

/// The least window after a loss, packets (RFC 5681).
const LEAST_AFTER_LOSS: f64 = 2.0;

/// Why a run has to end.
enum Failure {
    /// Ctrl-C reached Python's code.
    Interrupted,
    /// Python's code is wrong: a line that says where and what.
    Raised(String),
}

thread_local! {
    /// What has gone wrong in one during the run of this thread; all are silent from then on.
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Whether the run has to end.
pub(crate) fn has_failed() -> bool {
    FAILURE.with_borrow(Option::is_some)
}

/// Passes on what is measured, unless what would follow is wrong: half a run with a wrong controller is none.
pub(crate) struct Guarded<'s>(pub(crate) &'s mut (dyn Sink + Send));

impl Sink for Guarded<'_> {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        FAILURE.with_borrow(|failure| match failure {
            Some(Failure::Raised(line)) => Err(FileError::Stream { reason: line.clone() }),
            _ => Ok(()),
        })?;
        self.0.take(piece)
    }
}

/// What has ended the run, if anything has: `true` where that was Ctrl-C.
///
/// # Errors
/// Anything else that has.
pub(crate) fn take_failure() -> Fallible<bool> {
    match FAILURE.take() {
        None => Ok(false),
        Some(Failure::Interrupted) => Ok(true),
        Some(Failure::Raised(line)) => Err(run_error(&line)),
    }
}

/// Ends the run for what a file's code has raised.
pub(crate) fn fail(py: Python<'_>, error: PyErr, file: &str, place: &str) {
    FAILURE.set(Some(described(py, error, file, place)));
}

/// What an error of a file's code means for the run.
fn described(py: Python<'_>, error: PyErr, file: &str, place: &str) -> Failure {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Failure::Interrupted;
    }
    let told = py.import(READER).and_then(|reader| {
        reader.call_method1("describe", (error.into_value(py), file, place))?.extract()
    });
    Failure::Raised(told.unwrap_or_else(|failed| failed.to_string()))
}

/// Runs a file; flows that name it get what it defines from now on.
pub(crate) fn adopt(py: Python<'_>, file: &str) -> PyResult<()> {
    let class = Arc::new(py.import(READER)?.call_method1("read_class", (file,))?.unbind());
    let whole = Arc::<str>::from(file);
    Registry::global().adopt(file, move |setup| {
        let made = Python::attach(|py| Idea::new(py, &class, &whole, setup));
        let failed = |error: PyErr| {
            let what = Python::attach(|py| error.value(py).to_string());
            CcError::File { what }
        };
        made.map(|idea| Box::new(idea) as Controller).map_err(failed)
    });
    Ok(())
}

/// What an ACK says, as `on_ack` gets it.
#[pyclass(frozen, get_all)]
struct Ack {
    now_s: f64,
    acked: u32,
    lost: i32,
    rtt_s: Option<f64>,
    min_rtt_s: Option<f64>,
    srtt_s: Option<f64>,
    inflight: u32,
    delivery_rate_bps: Option<f64>,
    app_limited: bool,
    cwnd_limited: bool,
    marked: bool,
    in_recovery: bool,
}

impl Ack {
    fn new(tp: &TcpSock, flag: u32, sample: &RateSample) -> Self {
        let seconds = |us: i64| (us > 0).then_some(us as f64 / 1e6);
        let is_measured = sample.delivered > 0 && sample.interval_us > 0;
        let bits = f64::from(sample.delivered) * f64::from(tp.mss_cache) * 8.0;
        Self {
            now_s: tp.tcp_mstamp as f64 / 1e6,
            acked: sample.acked_sacked,
            lost: sample.losses,
            rtt_s: seconds(sample.rtt_us),
            min_rtt_s: seconds(tp.min_rtt_us().into()).filter(|_| tp.min_rtt_us() != u32::MAX),
            srtt_s: seconds(i64::from(tp.srtt_us) / 8),
            inflight: tp.packets_in_flight(),
            delivery_rate_bps: is_measured.then(|| bits * 1e6 / sample.interval_us as f64),
            app_limited: sample.is_app_limited,
            cwnd_limited: tp.is_cwnd_limited(),
            marked: flag & FLAG_ECE != 0,
            in_recovery: tp.ca_state() >= CongestionState::Cwr,
        }
    }
}

#[pymethods]
impl Ack {
    fn __repr__(ack: &Bound<'_, Self>) -> PyResult<String> {
        let names = [
            "now_s",
            "acked",
            "lost",
            "rtt_s",
            "min_rtt_s",
            "srtt_s",
            "inflight",
            "delivery_rate_bps",
            "app_limited",
            "cwnd_limited",
            "marked",
            "in_recovery",
        ];
        let shown = |name| Ok(format!("{name}={}", ack.getattr(name)?.repr()?));
        let all = names.into_iter().map(shown).collect::<PyResult<Vec<String>>>()?;
        Ok(format!("Ack({})", all.join(", ")))
    }
}

/// One at work for one end of a connection.
#[derive(Debug)]
struct Idea {
    file: Arc<str>,
    object: Py<PyAny>,
    /// Window and threshold that TCP was given last: where it has others now, that is TCP's own doing.
    given: (u32, u32),
    /// TCP has asked for a threshold: what follows is a loss, or a timeout.
    reduces: bool,
}

impl Idea {
    fn new(
        py: Python<'_>,
        class: &Py<PyAny>,
        file: &Arc<str>,
        setup: &Setup<'_>,
    ) -> PyResult<Self> {
        let mss = TcpSock::default().mss_cache;
        let arguments = (class, &**file, setup.params.to_vec(), setup.seed, mss);
        let object = py.import(READER)?.call_method1("new", arguments)?.unbind();
        Ok(Self { file: Arc::clone(file), object, given: (0, 0), reduces: false })
    }

    /// Lets Python work on the connection, unless it has failed before; what it raises ends the run.
    fn step(
        &mut self,
        name: &str,
        tp: &mut TcpSock,
        work: impl FnOnce(&mut Self, &Bound<'_, PyAny>, &mut TcpSock) -> PyResult<()>,
    ) {
        if has_failed() {
            return;
        }
        let result = Python::attach(|py| {
            let object = self.object.bind(py).clone();
            let worked = work(self, &object, tp).and_then(|()| self.push(&object, tp));
            worked.map_err(|error| self.described(py, error, name, tp))
        });
        if let Err(failure) = result {
            FAILURE.set(Some(failure));
        }
    }

    /// What an error means for the run.
    fn described(&self, py: Python<'_>, error: PyErr, name: &str, tp: &TcpSock) -> Failure {
        let place = format!(" (in {name}, at {:.3} s)", tp.tcp_mstamp as f64 / 1e6);
        described(py, error, &self.file, &place)
    }

    /// Tells it of window and threshold, where TCP has changed them.
    fn pull(&mut self, object: &Bound<'_, PyAny>, tp: &TcpSock) -> PyResult<()> {
        let (cwnd, ssthresh) = self.given;
        if tp.snd_cwnd != cwnd {
            object.setattr("cwnd", f64::from(tp.snd_cwnd))?;
        }
        if tp.snd_ssthresh != ssthresh {
            object.setattr("ssthresh", threshold_for(tp.snd_ssthresh))?;
        }
        self.given = (tp.snd_cwnd, tp.snd_ssthresh);
        Ok(())
    }

    /// Takes window, threshold and pacing from it.
    fn push(&mut self, object: &Bound<'_, PyAny>, tp: &mut TcpSock) -> PyResult<()> {
        let py = object.py();
        let most = f64::from(TCP_INFINITE_SSTHRESH);
        let cwnd = number(object, intern!(py, "cwnd"))?.clamp(1.0, most);
        let ssthresh = number(object, intern!(py, "ssthresh"))?.clamp(1.0, most);
        (tp.snd_cwnd, tp.snd_ssthresh) = ((cwnd as u32).min(tp.snd_cwnd_clamp), ssthresh as u32);
        self.given = (tp.snd_cwnd, tp.snd_ssthresh);
        let rate: Option<f64> = object.getattr(intern!(py, "pacing_rate_bps"))?.extract()?;
        let usual = usual_rate(tp);
        let sk = tp.sk_mut();
        match rate {
            Some(bps) if bps.is_nan() => {
                return Err(PyValueError::new_err("pacing_rate_bps is nan"));
            }
            Some(bps) => {
                sk.sk_pacing_status = SK_PACING_NEEDED;
                sk.sk_pacing_rate = ((bps / 8.0) as u64).clamp(1, sk.sk_max_pacing_rate);
            }
            None => {
                sk.sk_pacing_status = SK_PACING_NONE;
                sk.sk_pacing_rate = usual.min(sk.sk_max_pacing_rate);
            }
        }
        Ok(())
    }
}

/// A number that it keeps.
fn number(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<f64> {
    let value: f64 = object.getattr(name)?.extract()?;
    if value.is_nan() {
        return Err(PyValueError::new_err(format!("{name} is nan")));
    }
    Ok(value)
}

/// A threshold as Python has it: infinite where Linux has none.
fn threshold_for(ssthresh: u32) -> f64 {
    if ssthresh >= TCP_INFINITE_SSTHRESH { f64::INFINITY } else { ssthresh.into() }
}

/// The rate by which Linux sizes bursts where nobody paces, bytes per second.
fn usual_rate(tp: &TcpSock) -> u64 {
    let percent = if tp.snd_cwnd < tp.snd_ssthresh / 2 { 200 } else { 120 };
    let window = u64::from(tp.snd_cwnd.max(tp.packets_out));
    u64::from(tp.mss_cache) * 80_000 * percent * window / u64::from(tp.srtt_us.max(1))
}

/// Calls `on_loss` or `on_timeout`; where there is none the window becomes `usual_cwnd` of half of it, as Reno's does.
fn reduce(object: &Bound<'_, PyAny>, name: &str, usual_cwnd: fn(f64) -> f64) -> PyResult<()> {
    if let Some(method) = object.getattr_opt(name)? {
        return method.call0().map(drop);
    }
    let half = (number(object, intern!(object.py(), "cwnd"))? / 2.0).max(LEAST_AFTER_LOSS);
    object.setattr("ssthresh", half)?;
    object.setattr("cwnd", usual_cwnd(half))
}

/// It has the window at all times: no PRR, and no `cong_avoid`.
impl CongestionControl for Idea {
    fn init(&mut self, tp: &mut TcpSock) {
        self.step("__init__", tp, |_, _, _| Ok(()));
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn cong_control(&mut self, tp: &mut TcpSock, _ack: u32, flag: u32, sample: &RateSample) {
        self.step("on_ack", tp, |idea, object, tp| {
            idea.pull(object, tp)?;
            let ack = Ack::new(tp, flag, sample);
            object.call_method1(intern!(object.py(), "on_ack"), (ack,)).map(drop)
        });
    }

    /// Says nothing new: what it thinks of the loss it is asked in `set_state`, which tells losses from timeouts.
    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        self.reduces = true;
        self.step("on_loss", tp, |idea, object, tp| idea.pull(object, tp));
        tp.snd_ssthresh
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_cwnd.max(tp.prior_cwnd)
    }

    fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        let begins = std::mem::take(&mut self.reduces);
        match state {
            CongestionState::Cwr | CongestionState::Recovery if begins => {
                self.step("on_loss", tp, |_, object, _| reduce(object, "on_loss", |half| half));
            }
            // TCP has shut the window already: Python still has what it was before.
            CongestionState::Loss if begins => {
                self.step("on_timeout", tp, |_, object, _| reduce(object, "on_timeout", |_| 1.0));
            }
            _ => {}
        }
    }
}
