//! Congestion controls in Python, for the simulator: `skyhop.data.python_cc` reads the classes, and the controllers here
//! call their methods.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use skyhop_cc::bindings::{FLAG_ECE, SK_PACING_NEEDED, TCP_INFINITE_SSTHRESH};
use skyhop_cc::{
    Announcements, CcError, CongestionControl, Controller, RateSample, Registry, SK_PACING_NONE,
    Setup, TcpSock,
};
use skyhop_model::CongestionState;
use skyhop_record::{FileError, Piece, Sink};

use crate::errors::{Fallible, run_error};

pub(crate) const READER: &str = "skyhop.data.python_cc";

/// Smallest window after a loss, in packets (RFC 5681).
const LEAST_AFTER_LOSS: f64 = 2.0;

/// Reason why a run must end.
enum Failure {
    /// Ctrl-C interrupted the Python code.
    Interrupted,
    /// Exception of the Python code, as one line with file, line and message.
    Raised(String),
}

thread_local! {
    /// First failure of a controller in this thread's run; after it, no controller is called.
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Whether a controller has failed, so that the run must end.
pub(crate) fn has_failed() -> bool {
    FAILURE.with_borrow(Option::is_some)
}

/// Sink that stops writing after a controller has failed, because the rest of the run would be wrong.
pub(crate) struct Guarded<'s>(pub(crate) &'s mut (dyn Sink + Send));

impl Sink for Guarded<'_> {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        FAILURE.with_borrow(|failure| match failure {
            Some(Failure::Raised(line)) => Err(FileError::Stream { reason: line.clone() }),
            _ => Ok(()),
        })?;
        self.0.write(piece)
    }

    fn takes_packets_of(&self, flow: u32) -> bool {
        self.0.takes_packets_of(flow)
    }
}

/// Reset the failure; return whether the run was ended by Ctrl-C.
///
/// # Errors
/// A controller has raised an exception other than that of Ctrl-C.
pub(crate) fn take_failure() -> Fallible<bool> {
    match FAILURE.take() {
        None => Ok(false),
        Some(Failure::Interrupted) => Ok(true),
        Some(Failure::Raised(line)) => Err(run_error(&line)),
    }
}

/// End the run because the code of a user's file has raised an exception.
pub(crate) fn fail(py: Python<'_>, error: PyErr, file: &str, place: &str) {
    FAILURE.set(Some(failure_of(py, error, file, place)));
}

/// Convert an exception that the code of a user's file has raised to a failure of the run.
fn failure_of(py: Python<'_>, error: PyErr, file: &str, place: &str) -> Failure {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Failure::Interrupted;
    }
    let line = py.import(READER).and_then(|reader| {
        reader.call_method1("describe", (error.into_value(py), file, place))?.extract()
    });
    Failure::Raised(line.unwrap_or_else(|failed| failed.to_string()))
}

/// Execute a file and register its class as a congestion control for flows that name the file.
pub(crate) fn adopt(py: Python<'_>, file: &str) -> PyResult<()> {
    let class = Arc::new(py.import(READER)?.call_method1("read_class", (file,))?.unbind());
    let path = Arc::<str>::from(file);
    let announcements = |_: &[(&str, &str)]| Announcements::default();
    Registry::global().adopt(file, announcements, move |setup| {
        let created = Python::attach(|py| PyController::new(py, &class, &path, setup));
        let failed = |error: PyErr| {
            let what = Python::attach(|py| error.value(py).to_string());
            CcError::File { what }
        };
        created.map(|controller| Box::new(controller) as Controller).map_err(failed)
    });
    Ok(())
}

/// Argument of `on_ack`: measurements at one ACK.
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

/// Congestion control in Python for one end of a connection.
#[derive(Debug)]
struct PyController {
    file: Arc<str>,
    object: Py<PyAny>,
    /// Window and slow-start threshold as last written to TCP. If TCP's values differ, TCP has changed them.
    written: (u32, u32),
    /// Whether TCP has called `ssthresh`, so that the next state change is a loss or a timeout.
    reduction_pending: bool,
}

impl PyController {
    fn new(
        py: Python<'_>,
        class: &Py<PyAny>,
        file: &Arc<str>,
        setup: &Setup<'_>,
    ) -> PyResult<Self> {
        let mss = TcpSock::default().mss_cache;
        let arguments = (class, &**file, setup.params.to_vec(), setup.seed, mss);
        let object = py.import(READER)?.call_method1("new", arguments)?.unbind();
        Ok(Self { file: Arc::clone(file), object, written: (0, 0), reduction_pending: false })
    }

    /// Call `work` with the Python object, then copy the object's state to TCP. After a failure this is a no-op. An
    /// exception ends the run.
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
            let result = work(self, &object, tp).and_then(|()| self.push(&object, tp));
            result.map_err(|error| self.failure_of(py, error, name, tp))
        });
        if let Err(failure) = result {
            FAILURE.set(Some(failure));
        }
    }

    /// Convert an exception to a failure, with the method's name and the time.
    fn failure_of(&self, py: Python<'_>, error: PyErr, name: &str, tp: &TcpSock) -> Failure {
        let place = format!(" (in {name}, at {:.3} s)", tp.tcp_mstamp as f64 / 1e6);
        failure_of(py, error, &self.file, &place)
    }

    /// Copy window and slow-start threshold from TCP to the object if TCP has changed them.
    fn pull(&mut self, object: &Bound<'_, PyAny>, tp: &TcpSock) -> PyResult<()> {
        let (cwnd, ssthresh) = self.written;
        if tp.snd_cwnd != cwnd {
            object.setattr("cwnd", f64::from(tp.snd_cwnd))?;
        }
        if tp.snd_ssthresh != ssthresh {
            object.setattr("ssthresh", threshold_for(tp.snd_ssthresh))?;
        }
        self.written = (tp.snd_cwnd, tp.snd_ssthresh);
        Ok(())
    }

    /// Copy window, slow-start threshold and pacing rate from the object to TCP.
    fn push(&mut self, object: &Bound<'_, PyAny>, tp: &mut TcpSock) -> PyResult<()> {
        let py = object.py();
        let most = f64::from(TCP_INFINITE_SSTHRESH);
        let cwnd = number(object, intern!(py, "cwnd"))?.clamp(1.0, most);
        let ssthresh = number(object, intern!(py, "ssthresh"))?.clamp(1.0, most);
        (tp.snd_cwnd, tp.snd_ssthresh) = ((cwnd as u32).min(tp.snd_cwnd_clamp), ssthresh as u32);
        self.written = (tp.snd_cwnd, tp.snd_ssthresh);
        let rate: Option<f64> = object.getattr(intern!(py, "pacing_rate_bps"))?.extract()?;
        let default_rate = default_rate(tp);
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
                sk.sk_pacing_rate = default_rate.min(sk.sk_max_pacing_rate);
            }
        }
        Ok(())
    }
}

/// Numeric attribute of the object; NaN is an error.
fn number(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<f64> {
    let value: f64 = object.getattr(name)?.extract()?;
    if value.is_nan() {
        return Err(PyValueError::new_err(format!("{name} is nan")));
    }
    Ok(value)
}

/// Slow-start threshold in the form for Python: TCP_INFINITE_SSTHRESH becomes infinity.
fn threshold_for(ssthresh: u32) -> f64 {
    if ssthresh >= TCP_INFINITE_SSTHRESH { f64::INFINITY } else { ssthresh.into() }
}

/// Rate by which Linux sizes bursts of unpaced connections, in bytes per second (tcp_update_pacing_rate).
fn default_rate(tp: &TcpSock) -> u64 {
    let percent = if tp.snd_cwnd < tp.snd_ssthresh / 2 { 200 } else { 120 };
    let window = u64::from(tp.snd_cwnd.max(tp.packets_out));
    u64::from(tp.mss_cache) * 80_000 * percent * window / u64::from(tp.srtt_us.max(1))
}

/// Call the method `name`: `on_loss` or `on_timeout`. If the class has no such method, set the
/// threshold to half the window, and the window to `default_cwnd(half)`, as Reno does.
fn reduce(object: &Bound<'_, PyAny>, name: &str, default_cwnd: fn(f64) -> f64) -> PyResult<()> {
    if let Some(method) = object.getattr_opt(name)? {
        return method.call0().map(drop);
    }
    let half = (number(object, intern!(object.py(), "cwnd"))? / 2.0).max(LEAST_AFTER_LOSS);
    object.setattr("ssthresh", half)?;
    object.setattr("cwnd", default_cwnd(half))
}

/// The hook `cong_control` is implemented, so that the Python class sets the window at all times,
/// without PRR and `cong_avoid`.
impl CongestionControl for PyController {
    fn init(&mut self, tp: &mut TcpSock) {
        self.step("__init__", tp, |_, _, _| Ok(()));
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn cong_control(&mut self, tp: &mut TcpSock, _ack: u32, flag: u32, sample: &RateSample) {
        self.step("on_ack", tp, |controller, object, tp| {
            controller.pull(object, tp)?;
            let ack = Ack::new(tp, flag, sample);
            object.call_method1(intern!(object.py(), "on_ack"), (ack,)).map(drop)
        });
    }

    /// Return the current threshold; the Python methods are called in `set_state`, which distinguishes losses from
    /// timeouts.
    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        self.reduction_pending = true;
        self.step("on_loss", tp, |controller, object, tp| controller.pull(object, tp));
        tp.snd_ssthresh
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_cwnd.max(tp.prior_cwnd)
    }

    fn set_state(&mut self, tp: &mut TcpSock, state: CongestionState) {
        let is_reduction = std::mem::take(&mut self.reduction_pending);
        match state {
            CongestionState::Cwr | CongestionState::Recovery if is_reduction => {
                self.step("on_loss", tp, |_, object, _| reduce(object, "on_loss", |half| half));
            }
            // TCP has already reduced the window; the Python object still has the previous one.
            CongestionState::Loss if is_reduction => {
                self.step("on_timeout", tp, |_, object, _| reduce(object, "on_timeout", |_| 1.0));
            }
            _ => {}
        }
    }
}
