//! The sites, with their devices and the packets on the way to them, and the ends of the flows there.

use std::sync::Arc;

use skyhop_link::{LinkError, LinkStats, NO_NODE, Packet};
use skyhop_model::LossReason;
use skyhop_units::Instant;

use crate::arrivals::InAir;
use crate::calendar::Calendar;
use crate::device::{AirDevice, Losses};
use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::transfer::{Outboxes, Routed, Transfer, Way};
use crate::view::{Crossing, NO_SATELLITE, Routes, View};

/// Ends of flows, at all sites.
pub trait Hosts<P> {
    /// Time at which [`Self::visit`] has to be called next.
    fn next(&self) -> Option<Instant>;

    /// Process what is due at `now`, and send packets.
    fn visit(&mut self, now: Instant, network: &mut impl Uplinks<P>);

    /// Process a packet that has arrived at its destination.
    fn arrive(&mut self, packet: Packet<P>, now: Instant, network: &mut impl Uplinks<P>);
}

/// Entrance of the network for packets of the hosts.
pub trait Uplinks<P> {
    /// Hand a packet to the device of a site.
    fn send(&mut self, site: u32, now: Instant, packet: Packet<P>);
}

/// All sites, with the packets on the way to them.
pub(crate) struct Ground<P> {
    layout: Arc<Layout>,
    fleet: Arc<Fleet>,
    /// Ends of transmissions of each site, then next arrivals at each site through the air, then from sites behind it.
    calendar: Calendar,
    uplinks: Vec<AirDevice<P>>,
    in_air: Vec<InAir<P>>,
    /// Packets on the way to each antenna from the sites behind it.
    in_fibre: Vec<InAir<P>>,
    pub(crate) outboxes: Outboxes<P>,
    pub(crate) losses: Losses<P>,
    /// Packets that have arrived at a site so far.
    pub(crate) crossings: u64,
}

impl<P: Routed> Ground<P> {
    pub(crate) fn new(layout: &Arc<Layout>, fleet: &Arc<Fleet>) -> Result<Self, LinkError> {
        let sites = layout.sites as usize;
        let mut ground = Self {
            calendar: Calendar::new(3 * sites, 0),
            uplinks: layout.up.iter().map(AirDevice::new).collect::<Result<_, _>>()?,
            in_air: (0..sites).map(|_| InAir::new()).collect(),
            in_fibre: (0..sites).map(|_| InAir::new()).collect(),
            outboxes: Outboxes::new(fleet.partitions + 1),
            losses: Losses::new(),
            crossings: 0,
            layout: Arc::clone(layout),
            fleet: Arc::clone(fleet),
        };
        for site in 0..sites {
            ground.plan_uplink(site);
        }
        Ok(ground)
    }

    /// Earliest event of the sites and of the hosts; [`Instant::NEVER`] if there is none.
    pub(crate) fn next(&self, hosts: &impl Hosts<P>) -> Instant {
        let of_sites = self.calendar.next().map(|(_, at)| at);
        of_sites.into_iter().chain(hosts.next()).min().unwrap_or(Instant::NEVER)
    }

    /// Process the events of the sites and of the hosts up to and including `until`, within a window.
    pub(crate) fn run_until(
        &mut self,
        until: Instant,
        hosts: &mut impl Hosts<P>,
        view: &View<impl Routes>,
    ) {
        loop {
            let (component, of_site) = self.calendar.next().unwrap_or((0, Instant::NEVER));
            let of_host = hosts.next().unwrap_or(Instant::NEVER);
            if of_site.min(of_host) > until {
                return;
            }
            if of_site <= of_host {
                self.visit(component, of_site, hosts, view);
            } else {
                hosts.visit(of_host, &mut Entrance(self, view));
            }
        }
    }

    fn visit(
        &mut self,
        component: usize,
        now: Instant,
        hosts: &mut impl Hosts<P>,
        view: &View<impl Routes>,
    ) {
        let sites = self.uplinks.len();
        match (component / sites, component % sites) {
            (0, site) => self.visit_uplink(site, now, view),
            (1, site) => {
                while let Some((_, packet)) = self.in_air[site].pop(now) {
                    self.crossings += 1;
                    hosts.arrive(packet, now, &mut Entrance(self, view));
                }
                self.calendar.set(component, self.in_air[site].next());
            }
            (_, antenna) => {
                while let Some((_, packet)) = self.in_fibre[antenna].pop(now) {
                    self.enter_uplink(antenna as u32, now, packet);
                }
                self.calendar.set(component, self.in_fibre[antenna].next());
            }
        }
    }

    /// Send the packets that leave a site through the air, and record the losses of its device.
    fn visit_uplink(&mut self, site: usize, now: Instant, view: &View<impl Routes>) {
        while let Some(packet) = self.uplinks[site].pop(now) {
            self.leave(site as u32, packet, now, view);
        }
        let device = self.device(site as u32);
        self.uplinks[site].take_losses(device, &mut self.losses);
        self.plan_uplink(site);
    }

    #[inline]
    fn plan_uplink(&mut self, site: usize) {
        let next = self.uplinks[site].next();
        self.calendar.set(site, (next != Instant::NEVER).then_some(next));
    }

    fn device(&self, site: u32) -> usize {
        self.layout.air_device(self.layout.satellites + site)
    }

    fn leave(&mut self, site: u32, packet: Packet<P>, now: Instant, view: &View<impl Routes>) {
        let satellite = view.routes.up(site, packet.payload.destination(), packet.flow);
        let crossing = match satellite {
            NO_SATELLITE => Crossing::NotInView,
            satellite => view.crossing(site, satellite, now),
        };
        match crossing {
            Crossing::Arrives(at) => {
                let over = Way::Air { from: self.layout.satellites + site, to: satellite };
                self.outboxes.push(self.fleet.home(satellite), Transfer { at, over, packet });
            }
            Crossing::Sets => self.lose(site, packet, (view.until, LossReason::Dismantled)),
            Crossing::NotInView => self.lose(site, packet, (now, LossReason::Outage)),
        }
    }

    #[cold]
    fn lose(&mut self, site: u32, packet: Packet<P>, (at, reason): (Instant, LossReason)) {
        self.losses.outside(self.device(site), packet, at, reason);
    }

    /// Take over a packet on the way to a site.
    pub(crate) fn accept(&mut self, transfer: Transfer<P>) {
        let Transfer { at, over: Way::Air { from, to }, packet } = transfer else {
            unreachable!("no laser leads to a site");
        };
        let site = to as usize;
        self.in_air[site].enter(at, from, packet);
        self.calendar.set(self.uplinks.len() + site, self.in_air[site].next());
    }

    /// Bring devices with events of their own up to `now`, after all events up to that time.
    pub(crate) fn settle(&mut self, now: Instant, view: &View<impl Routes>) {
        for site in 0..self.uplinks.len() {
            self.visit_uplink(site, now, view);
        }
    }

    /// Add the counters of the sites' devices, by their numbers, after all events up to `now`.
    pub(crate) fn add_stats(&mut self, now: Instant, stats: &mut [LinkStats]) {
        let first = self.device(0);
        for (device, uplink) in (first..).zip(&mut self.uplinks) {
            stats[device] = uplink.stats(now);
        }
    }

    /// Hand a packet to the device of a site.
    #[inline]
    fn enter_uplink(&mut self, site: u32, now: Instant, packet: Packet<P>) {
        let index = site as usize;
        match self.uplinks[index].enqueue(now, NO_NODE, packet) {
            Ok(()) => self.plan_uplink(index),
            Err(packet) => self.losses.overflow(self.device(site), packet, now),
        }
    }

    /// Send a packet from a site without an antenna to the one that its route leads over.
    fn enter_fibre(
        &mut self,
        site: u32,
        now: Instant,
        packet: Packet<P>,
        view: &View<impl Routes>,
    ) {
        let satellite = view.routes.up(site, packet.payload.destination(), packet.flow);
        let Some((antenna, delay)) = view.antenna(site, satellite) else {
            return self.lose(site, packet, (now, LossReason::Outage));
        };
        let line = &mut self.in_fibre[antenna as usize];
        line.enter(now + delay, site, packet);
        self.calendar.set(2 * self.uplinks.len() + antenna as usize, line.next());
    }

    /// Number of packets in the air on the way to sites, and in fibre on the way to antennas.
    pub(crate) fn in_air(&self) -> u64 {
        self.in_air.iter().chain(&self.in_fibre).map(InAir::len).sum()
    }
}

/// Entrance of the network for the hosts.
struct Entrance<'g, P, R>(&'g mut Ground<P>, &'g View<R>);

impl<P: Routed, R: Routes> Uplinks<P> for Entrance<'_, P, R> {
    #[inline]
    fn send(&mut self, site: u32, now: Instant, packet: Packet<P>) {
        let Self(ground, view) = self;
        if ground.layout.is_behind[site as usize] {
            ground.enter_fibre(site, now, packet, view);
        } else {
            ground.enter_uplink(site, now, packet);
        }
    }
}
