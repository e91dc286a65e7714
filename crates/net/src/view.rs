//! Views: the routes of a step of time, and the delays between satellites and sites.

use skyhop_units::{Duration, Instant};

/// Next hop of a packet: the number of one of the satellite's lasers, or one of [`DOWN`] and [`NO_ROUTE`].
pub type Port = u8;

/// Port of the device towards the sites.
pub const DOWN: Port = u8::MAX - 1;
/// Entry of a satellite that has no route to the destination.
pub const NO_ROUTE: Port = u8::MAX;
/// Entry of a site that has no route to the destination.
pub const NO_SATELLITE: u32 = u32::MAX;

/// Satellite that a site can use during a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Air {
    /// Number of the satellite.
    pub satellite: u32,
    /// Site with the antenna: the site itself, or the one over which packets enter and leave it.
    pub antenna: u32,
    /// One-way delay between the site and the antenna, over a line that never fills.
    pub fibre: Duration,
    /// One-way delay between the antenna and the satellite at the step's begin and at its end; it changes linearly.
    pub delay: [Duration; 2],
    /// Whether the satellite is out of view from the step's end on. Packets that are then in the air are lost.
    pub sets: bool,
}

/// Fate of a packet in the air.
pub(crate) enum Crossing {
    /// The packet arrives at this time.
    Arrives(Instant),
    /// The packet is lost, because the satellite has set before it arrives.
    Sets,
    /// The packet cannot enter the air, because the satellite is not in view.
    NotInView,
}

/// Next hops of packets.
pub trait Routes: Sync {
    /// Next hop of a flow's packet from a satellite to a site: one of the satellite's lasers, [`DOWN`] or [`NO_ROUTE`].
    fn port(&self, satellite: u32, destination: u32, flow: u32) -> Port;

    /// Satellite to which a site sends a flow's packet to another site; [`NO_SATELLITE`] without a route.
    fn up(&self, site: u32, destination: u32, flow: u32) -> u32;
}

/// Routes and delays during a step of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View<R> {
    /// Begin of the step.
    pub from: Instant,
    /// End of the step, at which the next one begins.
    pub until: Instant,
    /// Next hops during the step.
    pub routes: R,
    /// Satellites that each site can use, in ascending order.
    pub air: Vec<Vec<Air>>,
}

impl<R> View<R> {
    /// Fate of a packet that enters the air between a satellite and a site at `now`, up to the site itself if that is
    /// behind the antenna.
    #[inline]
    pub(crate) fn crossing(&self, site: u32, satellite: u32, now: Instant) -> Crossing {
        let Some(air) = self.air(site, satellite) else { return Crossing::NotInView };
        let at = now + self.delay(air, now);
        if air.sets && at > self.until { Crossing::Sets } else { Crossing::Arrives(at + air.fibre) }
    }

    /// Antenna over which a site behind others sends to a satellite, and the delay to it; `None` if it has none.
    #[inline]
    pub(crate) fn antenna(&self, site: u32, satellite: u32) -> Option<(u32, Duration)> {
        self.air(site, satellite).map(|air| (air.antenna, air.fibre))
    }

    /// The satellite in the view of a site, if it is in view.
    #[inline]
    fn air(&self, site: u32, satellite: u32) -> Option<&Air> {
        let in_view = &self.air[site as usize];
        let place = in_view.binary_search_by_key(&satellite, |air| air.satellite).ok()?;
        Some(&in_view[place])
    }

    /// Delay between a site and a satellite in view, for a packet that enters the air at `now`.
    #[inline]
    fn delay(&self, air: &Air, now: Instant) -> Duration {
        let [begin_ns, end_ns] = air.delay.map(|delay| delay.as_nanos() as i64);
        if begin_ns == end_ns {
            return air.delay[0];
        }
        // A step of a minute in which the delay changes by 100 ms, far more than in any orbit, does not overflow.
        let lasts_ns = (self.until - self.from).as_nanos() as i64;
        let since_ns = (now - self.from).as_nanos() as i64;
        let change_ns = (end_ns - begin_ns) * since_ns / lasts_ns;
        Duration::from_nanos((begin_ns + change_ns) as u64)
    }

    /// Shortest delay between a site and a satellite during the step.
    pub(crate) fn least_delay(&self) -> Duration {
        let delays = self.air.iter().flatten().flat_map(|air| air.delay);
        delays.min().unwrap_or(Duration::MAX)
    }
}

/// Source of the views, one step after the other from the run's start.
pub trait Views {
    /// Next hops of the views.
    type Routes: Routes;

    /// Replace `view` by that of the next step, which begins where the last one ends.
    fn advance(&mut self, view: &mut View<Self::Routes>);
}
