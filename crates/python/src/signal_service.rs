//! Python binding of the service that announces handovers on this machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use skyhop_signal::Timing;
use skyhop_signal::blind::Period;
use skyhop_signal::schedule::HandoverGrid;
use skyhop_signald::{ForecastPlan, NamespaceChoice, ServiceOptions, ServiceSource, serve};
use skyhop_units::{Duration, UtcInstant};

use crate::blind::estimated;
use crate::errors::{Fallible, input_error};
use crate::experiment::{FoundPlace, PyScenario, place};
use crate::service_control::PyServiceControl;

/// Earliest plausible wall-clock time, 2001-09-09: earlier times mean that the log's clock is not
/// UTC but starts with the log.
const FIRST_WALL_CLOCK: UtcInstant = UtcInstant::from_unix_nanos(1_000_000_000_000_000_000);
/// Directory of named network namespaces (ip-netns(8)).
const NAMED_NAMESPACES: &str = "/run/netns";

/// Announce handovers until Ctrl-C or the end of the source. `note` is called with messages for the user.
#[pyfunction]
#[pyo3(signature = (
    source, file, interface, grid, timing, netns, destination, socket, note, forecast=None
))]
#[expect(clippy::too_many_arguments, reason = "the options of a command")]
pub(crate) fn serve_signal(
    py: Python<'_>,
    source: &str,
    file: Option<&str>,
    interface: Option<&str>,
    grid: (String, String),
    timing: (String, String),
    netns: Option<&str>,
    destination: Option<&str>,
    socket: &str,
    note: Py<PyAny>,
    forecast: Option<ForecastOptions<'_>>,
) -> Fallible<()> {
    let grid = HandoverGrid {
        period: duration("--period", &grid.0, Duration::from_secs(1))?,
        offset: duration("--offset", &grid.1, Duration::ZERO)?,
    };
    let error = timing.1.parse().map_err(|error| input_error(&format!("--error: {error}")))?;
    let lead = duration("--lead", &timing.0, Duration::ZERO)?;
    let options = ServiceOptions {
        source: match forecast {
            Some(options) => forecast_source(options)?,
            None => service_source(py, source, file, interface, grid)?,
        },
        timing: Timing::new(lead, error, 1),
        namespace: namespace(netns),
        destination: destination.map(prefix).transpose()?,
        socket: PathBuf::from(socket),
    };
    let mut control = PyServiceControl::new(note);
    let served = py.detach(|| serve(&options, &mut control));
    control.end(py)?;
    Ok(served?)
}

fn duration(option: &str, text: &str, least: Duration) -> Fallible<Duration> {
    let duration: Duration =
        text.parse().map_err(|error| input_error(&format!("{option}: {error}")))?;
    if duration < least {
        return Err(input_error(&format!("{option} {duration}: expected at least {least}")));
    }
    Ok(duration)
}

/// Options of a forecast: scenario with its `[path]`, file of element sets, place of the terminal, and the other end.
type ForecastOptions<'p> = (PyRef<'p, PyScenario>, &'p str, FoundPlace, Option<FoundPlace>);

fn forecast_source((scenario, elements, from, to): ForecastOptions<'_>) -> Fallible<ServiceSource> {
    let plan = ForecastPlan {
        scenario: scenario.0.clone(),
        elements: PathBuf::from(elements),
        from: place(from),
        to: to.map(place),
    };
    // Report errors before the service starts.
    plan.check()?;
    Ok(ServiceSource::Forecast(Box::new(plan)))
}

fn service_source(
    py: Python<'_>,
    source: &str,
    file: Option<&str>,
    interface: Option<&str>,
    grid: HandoverGrid,
) -> Fallible<ServiceSource> {
    let needed = |what: &str| {
        file.map(Path::new)
            .ok_or_else(|| input_error(&format!("--source {source} needs --file: {what}")))
    };
    match source {
        "schedule" => Ok(ServiceSource::Grid { grid, error: Duration::ZERO }),
        "path" => {
            let trace = skyhop_files::read_path(needed("a path of skyhop path")?, false)?;
            Ok(ServiceSource::Path(Box::new(trace)))
        }
        "blind" => match interface {
            Some(interface) => {
                let interface = interface.to_owned();
                Ok(ServiceSource::Watched { interface, period: grid.period })
            }
            None => logged_grid(
                py,
                needed("a log or capture, as skyhop blind reads it; or --interface")?,
                grid.period,
            ),
        },
        _ => Err(input_error(&format!(
            "--source {source}: expected schedule, path, blind or forecast"
        ))),
    }
}

/// Estimate the grid from a log. The estimate is usable by the service only if the log's times are
/// of the machine's wall clock.
fn logged_grid(py: Python<'_>, log: &Path, period: Duration) -> Fallible<ServiceSource> {
    let found = estimated(py, log, None, Period::Known(period))?;
    let wrong = |what: String| input_error(&format!("{}: {what}", log.display()));
    if found.last.is_some_and(|last| last < FIRST_WALL_CLOCK) {
        return Err(wrong(
            "its times do not count from 1970, so its grid says nothing about today's clock; \
             log with ping -D, capture with the time of day, or give --interface"
                .to_owned(),
        ));
    }
    let grid = found.estimate.grid.ok_or_else(|| wrong(format!("there is no grid of {period}")))?;
    Ok(ServiceSource::Grid { grid, error: found.estimate.evidence.error() })
}

fn namespace(netns: Option<&str>) -> NamespaceChoice {
    match netns {
        None => NamespaceChoice::Own,
        Some(path) if path.contains('/') => NamespaceChoice::Handle(PathBuf::from(path)),
        Some(pid) if pid.bytes().all(|digit| digit.is_ascii_digit()) => {
            NamespaceChoice::Handle(PathBuf::from(format!("/proc/{pid}/ns/net")))
        }
        Some(name) => NamespaceChoice::Handle(Path::new(NAMED_NAMESPACES).join(name)),
    }
}

fn prefix(text: &str) -> Fallible<(Ipv4Addr, u8)> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    match (address.parse(), bits.parse()) {
        (Ok(address), Ok(bits)) if bits <= 32 => Ok((address, bits)),
        _ => Err(input_error(&format!(
            "--destination {text}: expected an IPv4 prefix such as 203.0.113.0/24"
        ))),
    }
}
