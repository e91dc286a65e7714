//! Datapath between the two ends: pumps with skyhop's links, or routers with Linux's queue disciplines.

use std::sync::Arc;

use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_host::clock::{RunClock, Stop};
use skyhop_host::device::{Device, DeviceCount, DeviceKind};
use skyhop_host::error::HostError;
use skyhop_host::namespace::NetNamespace;
use skyhop_model::{Direction, End, LinuxLink};

use crate::arrivals::Arrivals;
use crate::pump::{Pump, PumpState, PumpView, Sojourn};
use crate::pump_threads::RunningPumps;
use crate::routes;
use crate::tc::{RunningTc, TcLinks, TcPlan};
use crate::timing::LatenessWindow;
use crate::traffic::Addresses;

/// Devices or routers that connect the namespaces of the two ends.
#[derive(Debug, Clone)]
pub(crate) enum Topology {
    /// One device per end; pumps move packets between the devices.
    Devices([Arc<Device>; 2]),
    /// Router namespaces whose disciplines emulate the link.
    Tc(Arc<TcLinks>),
}

impl Topology {
    /// Create the only device of each end.
    pub(crate) fn create(
        experiment: &Experiment,
        ends: [&NetNamespace; 2],
        preferred: DeviceKind,
        tc: Option<&TcPlan>,
    ) -> Result<Self, HostError> {
        if let Some(plan) = tc {
            return Ok(Self::Tc(TcLinks::create(ends, plan)?));
        }
        let [from_has, to_has] = [End::From, End::To].map(Addresses::all_of);
        let ends = [(ends[0], from_has.as_slice()), (ends[1], to_has.as_slice())];
        let devices = Device::create_pair(experiment.device, preferred, ends)?;
        Ok(Self::Devices(devices.map(Arc::new)))
    }

    /// Whether each loss is recorded as an event; not with Linux's disciplines, which only count losses.
    pub(crate) fn lists_losses(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// Whether the devices' counters count single packets; not with routers, which may receive
    /// several packets in one GSO buffer.
    pub(crate) fn counts_packets(&self) -> bool {
        matches!(self, Self::Devices(_))
    }

    /// Kernel's packet counters of the two ends' devices.
    pub(crate) fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        match self {
            Self::Devices([from, to]) => Ok([from.count()?, to.count()?]),
            Self::Tc(links) => links.counts(),
        }
    }

    /// Update the views of both directions from the disciplines' counters. Without disciplines this
    /// is a no-op: pumps update their own views.
    pub(crate) fn refresh(&self) -> Result<(), HostError> {
        match self {
            Self::Devices(_) => Ok(()),
            Self::Tc(links) => links.refresh(),
        }
    }

    /// Type of the ends' devices.
    pub(crate) fn kind(&self) -> DeviceKind {
        match self {
            Self::Devices(devices) => devices[0].kind(),
            Self::Tc(_) => DeviceKind::Veth,
        }
    }

    /// Emulator of the links: skyhop or Linux's disciplines.
    pub(crate) fn link(&self) -> LinuxLink {
        match self {
            Self::Devices(_) => LinuxLink::Skyhop,
            Self::Tc(_) => LinuxLink::Tc,
        }
    }

    /// Warnings about packets that were larger than any packet on a wire.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self {
            Self::Devices(devices) => devices.iter().filter_map(|one| one.warning()).collect(),
            Self::Tc(_) => Vec::new(),
        }
    }
}

/// Running datapath of both directions.
pub(crate) enum Datapath {
    /// Pumps that move packets through skyhop's links.
    Pumps(RunningPumps),
    /// Thread that applies the schedule to Linux's disciplines.
    Tc(RunningTc),
}

/// Inputs of the pumps, in addition to the devices.
pub(crate) struct PumpParts<'e> {
    pub(crate) experiment: &'e Experiment,
    pub(crate) clock: RunClock,
    /// Whether the clock is virtual, so that it stands still during computation.
    pub(crate) is_virtual: bool,
    pub(crate) spin: bool,
    pub(crate) stop: Arc<Stop>,
    pub(crate) flow_ids: Arc<[Option<u32>]>,
    pub(crate) arrivals: Arc<Arrivals>,
}

impl Datapath {
    /// Start the threads of the datapath.
    pub(crate) fn start(
        topology: &Topology,
        tc: Option<TcPlan>,
        parts: &PumpParts<'_>,
    ) -> Result<Self, HostError> {
        match (topology, tc) {
            (Topology::Devices(devices), _) => {
                let forward = parts.pump(Direction::Forward, devices)?;
                let back = parts.pump(Direction::Back, devices)?;
                Ok(Self::Pumps(RunningPumps::start([forward, back], parts)?))
            }
            (Topology::Tc(links), plan) => {
                let (links, stop) = (Arc::clone(links), Arc::clone(&parts.stop));
                Ok(Self::Tc(RunningTc::start(links, plan.unwrap_or_default(), parts.clock, stop)?))
            }
        }
    }

    /// Whether a thread has ended; before `stop` is set, a thread ends only because of an error.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Pumps(pumps) => pumps.has_ended(),
            Self::Tc(tc) => tc.has_ended(),
        }
    }

    /// Shared views of both directions.
    pub(crate) fn views(&self) -> [&Arc<PumpView>; 2] {
        match self {
            Self::Pumps(pumps) => pumps.views.each_ref(),
            Self::Tc(tc) => tc.links.views.each_ref(),
        }
    }

    /// Lateness of packets in the current window, per direction.
    pub(crate) fn lateness(&self) -> [&LatenessWindow; 2] {
        self.views().map(|view| &view.lateness)
    }

    /// Current states of both directions.
    pub(crate) fn states(&self) -> Result<[PumpState; 2], HostError> {
        if let Self::Tc(tc) = self {
            tc.links.refresh()?;
        }
        Ok(self.views().map(|view| view.state()))
    }

    /// Wait for the threads to end. Return the scheduled sojourn times of skyhop's own datagrams, per direction; the
    /// lists are empty with Linux's disciplines, which do not report sojourn times.
    pub(crate) fn join(self) -> Result<[Vec<Sojourn>; 2], HostError> {
        match self {
            Self::Pumps(pumps) => pumps.join(),
            Self::Tc(tc) => tc.join().map(|()| [Vec::new(), Vec::new()]),
        }
    }
}

impl PumpParts<'_> {
    fn pump(&self, direction: Direction, devices: &[Arc<Device>; 2]) -> Result<Pump, HostError> {
        let fabric = routes::build(self.experiment, direction, &self.flow_ids)
            .map_err(|error: Unsupported| HostError::Unsupported(error.to_string()))?;
        let index = direction.index();
        let learns = self.experiment.blind.is_some() && direction == Direction::Back;
        Ok(Pump {
            direction,
            fabric,
            from: Arc::clone(&devices[index]),
            to: Arc::clone(&devices[1 - index]),
            flow_ids: Arc::clone(&self.flow_ids),
            arrivals: learns.then(|| Arc::clone(&self.arrivals)),
        })
    }
}
