//! Service that announces handovers on this machine: to the congestion controls that are loaded in
//! the kernel, and to any program that connects to a Unix socket.

mod forecaster;
mod grid_tracker;
mod kernel_modules;
mod socket;
mod upcoming;
mod wall_clock;
mod watcher;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use skyhop_path::PathTrace;
use skyhop_signal::schedule::HandoverGrid;
use skyhop_signal::{Statement, Timing};
use skyhop_units::Duration;
use tracing::{debug, info, warn};

use skyhop_host::ServiceControl;
use skyhop_host::clock::minimize_timer_slack;
use skyhop_host::error::HostError;

use grid_tracker::GridTracker;
use kernel_modules::KernelModules;
use socket::SocketServer;
use upcoming::{Notice, Upcoming};
use wall_clock::WallClock;

pub use forecaster::ForecastPlan;
pub use kernel_modules::NamespaceChoice;
pub use socket::PROTOCOL_VERSION;

/// Time between two checks of the clock and of the caller's wish to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Configuration of the service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceOptions {
    /// Source of the handovers.
    pub source: ServiceSource,
    /// Lead time of announcements before handovers, and the error that is added deliberately.
    pub timing: Timing,
    /// Network namespace whose connections get announcements.
    pub namespace: NamespaceChoice,
    /// IPv4 prefix (address, length) of the connections' destinations; `None` for all connections.
    pub destination: Option<(Ipv4Addr, u8)>,
    /// Path of the Unix socket that the service creates.
    pub socket: PathBuf,
}

/// Source of the handover times.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceSource {
    /// Fixed grid in UTC. The announced error is the larger of `error` and the error of the machine's clock.
    Grid {
        /// Period and offset of the handovers.
        grid: HandoverGrid,
        /// Error of the grid's handover times, in either direction.
        error: Duration,
    },
    /// Grid estimated from the arrivals at a network interface; nothing is announced until one is found.
    Watched {
        /// Name of the network interface.
        interface: String,
        /// Time between two handovers.
        period: Duration,
    },
    /// Handovers of a path whose time zero is the start of the service.
    Path(Box<PathTrace>),
    /// Handovers forecast from element sets, from the start of the service on.
    Forecast(Box<ForecastPlan>),
}

/// Announce handovers until the source is exhausted or the caller interrupts, then withdraw the last announcement
/// from the kernel.
///
/// # Errors
/// The socket's path is in use, the namespace does not exist, or the kernel refuses an operation.
pub fn serve(options: &ServiceOptions, control: &mut dyn ServiceControl) -> Result<(), HostError> {
    minimize_timer_slack()?;
    let mut clock = WallClock::read()?;
    let mut tracker = GridTracker::start(&options.source)?;
    let mut server = SocketServer::open(&options.socket, &options.source)?;
    let mut modules = KernelModules::find(&options.namespace, options.destination)?;
    control.note(&format!("announcing on {}", options.socket.display()));
    if let Some(note) = server.limit_warning() {
        control.note(&note);
    }
    note_modules(&modules, control);
    warn_of_unsynchronised_clock(&clock, options, control);
    note_source(&options.source, control);
    let served = run(options, control, &mut clock, &mut server, &mut modules, &mut tracker);
    modules.withdraw().and(served)
}

fn run(
    options: &ServiceOptions,
    control: &mut dyn ServiceControl,
    clock: &mut WallClock,
    server: &mut SocketServer,
    modules: &mut KernelModules,
    tracker: &mut GridTracker,
) -> Result<(), HostError> {
    let mut upcoming = Upcoming::new(&options.source, options.timing, clock)?;
    while !control.interrupted() {
        if let Some(step_ns) = clock.update()? {
            warn!(step_ns, "clock was set");
            control.note("the clock was set; announcements follow it");
            upcoming.clock_set(clock)?;
            tracker.clock_set(&mut upcoming.agenda, clock.now(), step_ns);
        }
        tracker.update(&mut upcoming.agenda, clock.now(), control)?;
        for note in upcoming.update(clock, options.timing.longest_lead())? {
            control.note(&note);
        }
        match upcoming.pop(clock) {
            Some(Statement::Announced(announcement)) => {
                let notice = Notice::new(&announcement, &options.source, clock);
                modules.announce(&notice)?;
                server.announce(&notice)?;
                let Notice { at, outage, error, kind, .. } = notice;
                info!(%at, %outage, %error, %kind, modules = modules.names(), "handover announced");
            }
            Some(Statement::Withdrawn) => {
                modules.withdraw()?;
                debug!("announcement withdrawn");
            }
            None if upcoming.is_over() => break,
            None => {
                let wait = upcoming.wait(clock);
                // A refresh just before an announcement would delay it.
                if wait > POLL_INTERVAL {
                    match modules.refresh() {
                        Ok(true) => note_modules(modules, control),
                        Ok(false) => {}
                        // The known modules still get announcements; the next refresh may succeed.
                        Err(error) => {
                            debug!(%error, "search for loaded modules failed; it is tried again");
                            server.warn_once(&error.to_string(), control);
                        }
                    }
                }
                server.wait(wait.min(POLL_INTERVAL))?;
            }
        }
    }
    Ok(())
}

fn note_source(source: &ServiceSource, control: &mut dyn ServiceControl) {
    if let ServiceSource::Watched { interface, .. } = source {
        control.note(&format!("watching {interface}: announcements begin once a grid is found"));
    }
}

fn note_modules(modules: &KernelModules, control: &mut dyn ServiceControl) {
    control.note(&match modules.names() {
        "" => "no module is loaded: announcements go to the socket only".to_owned(),
        names => format!("announcements reach {names}"),
    });
}

fn warn_of_unsynchronised_clock(
    clock: &WallClock,
    options: &ServiceOptions,
    control: &mut dyn ServiceControl,
) {
    let in_utc = matches!(options.source, ServiceSource::Grid { .. } | ServiceSource::Forecast(_));
    if in_utc && !clock.is_synchronised() {
        control.note(&format!(
            "warning: the clock is not synchronised by NTP; it may be wrong by {}",
            clock.error()
        ));
    }
}
