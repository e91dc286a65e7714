//! A service that announces handovers on this machine: to the congestion controls that are loaded in
//! the kernel, and to any program that listens on a Unix socket.

mod forecaster;
mod grid_tracker;
mod listeners;
mod socket;
mod upcoming;
mod wall_clock;
mod watcher;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use skyhop_path::PathTrace;
use skyhop_signal::schedule::Grid;
use skyhop_signal::{Statement, Timing};
use skyhop_units::Duration;

use skyhop_host::ServiceControl;
use skyhop_host::clock::wake_precisely;
use skyhop_host::error::HostError;

use grid_tracker::GridTracker;
use listeners::Listeners;
use socket::Audience;
use upcoming::{Notice, Upcoming};
use wall_clock::WallClock;

pub use forecaster::ForecastPlan;
pub use listeners::NamespaceChoice;
pub use socket::PROTOCOL_VERSION;

/// How often the clock is compared and the caller asked whether to go on.
const LOOK: Duration = Duration::from_millis(200);

/// What the service is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceOptions {
    /// Where handovers are known from.
    pub source: ServiceSource,
    /// How long before a handover it is announced, and how wrong on purpose.
    pub timing: Timing,
    /// Whose connections are told.
    pub namespace: NamespaceChoice,
    /// Only connections to this IPv4 prefix.
    pub destination: Option<(Ipv4Addr, u8)>,
    /// The Unix socket.
    pub socket: PathBuf,
}

/// Where handovers are known from.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceSource {
    /// A grid in UTC, as wrong as `error` and the machine's clock.
    Grid {
        /// The grid.
        grid: Grid,
        /// How wrong it is, either way.
        error: Duration,
    },
    /// A grid that the arrivals at a network interface show, once they do; as wrong as they tell it.
    Watched {
        /// The interface.
        interface: String,
        /// The time between handovers.
        period: Duration,
    },
    /// A path that begins when the service does.
    Path(Box<PathTrace>),
    /// Orbits propagated from element sets, from now on.
    Forecast(Box<ForecastPlan>),
}

/// Announces until the source has nothing more to announce or the caller interrupts, and then takes back
/// what the kernel was told.
///
/// # Errors
/// The socket's place is taken, the namespace is not there, the kernel refuses.
pub fn serve(options: &ServiceOptions, control: &mut dyn ServiceControl) -> Result<(), HostError> {
    wake_precisely()?;
    let mut clock = WallClock::read()?;
    let mut tracker = GridTracker::start(&options.source)?;
    let mut audience = Audience::open(&options.socket, &options.source)?;
    let mut listeners = Listeners::find(&options.namespace, options.destination)?;
    control.note(&format!("announcing on {}", options.socket.display()));
    if let Some(note) = audience.few() {
        control.note(&note);
    }
    tell_listeners(&listeners, control);
    tell_clock(&clock, options, control);
    tell_source(&options.source, control);
    let served =
        announce_all(options, control, &mut clock, &mut audience, &mut listeners, &mut tracker);
    listeners.withdraw().and(served)
}

fn announce_all(
    options: &ServiceOptions,
    control: &mut dyn ServiceControl,
    clock: &mut WallClock,
    audience: &mut Audience,
    listeners: &mut Listeners,
    tracker: &mut GridTracker,
) -> Result<(), HostError> {
    let mut upcoming = Upcoming::new(&options.source, options.timing, clock)?;
    while !control.interrupted() {
        if let Some(step_ns) = clock.compare()? {
            control.note("the clock was set; announcements follow it");
            upcoming.clock_set(clock)?;
            tracker.clock_set(&mut upcoming.agenda, clock.now(), step_ns);
        }
        tracker.look(&mut upcoming.agenda, clock.now(), control)?;
        for note in upcoming.look_ahead(clock, options.timing.lead)? {
            control.note(&note);
        }
        match upcoming.pop(clock) {
            Some(Statement::Announced(announcement)) => {
                let notice = Notice::of(&announcement, &options.source, clock);
                listeners.announce(&notice)?;
                audience.announce(&notice)?;
            }
            Some(Statement::Withdrawn) => listeners.withdraw()?,
            None if upcoming.is_over() => break,
            None => {
                let wait = upcoming.wait(clock);
                // Not just before an announcement, which it would delay.
                if wait > LOOK {
                    match listeners.refresh() {
                        Ok(true) => tell_listeners(listeners, control),
                        Ok(false) => {}
                        // Those that it knows go on hearing; the next look may see more.
                        Err(error) => audience.once(&error.to_string(), control),
                    }
                }
                audience.wait(wait.min(LOOK))?;
            }
        }
    }
    Ok(())
}

fn tell_source(source: &ServiceSource, control: &mut dyn ServiceControl) {
    if let ServiceSource::Watched { interface, .. } = source {
        control.note(&format!("watching {interface}: announcements begin once a grid is found"));
    }
}

fn tell_listeners(listeners: &Listeners, control: &mut dyn ServiceControl) {
    control.note(&match listeners.names() {
        "" => "no module is loaded: announcements go to the socket only".to_owned(),
        names => format!("announcements reach {names}"),
    });
}

fn tell_clock(clock: &WallClock, options: &ServiceOptions, control: &mut dyn ServiceControl) {
    let in_utc = matches!(options.source, ServiceSource::Grid { .. } | ServiceSource::Forecast(_));
    if in_utc && !clock.is_synchronised() {
        control.note(&format!(
            "warning: the clock is not synchronised by NTP; it may be wrong by {}",
            clock.error()
        ));
    }
}
