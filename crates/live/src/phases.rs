//! Log of the phases (hold, drain and so on) in which a run's congestion controls react to announced handovers.

use std::sync::Arc;

use skyhop_kernel::{PhaseEvent, PhaseReader};
use skyhop_record::{EventRow, Recorder};
use tracing::debug;

use skyhop_host::clock::RunClock;
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::own_index;

/// Reader of the phase events of all modules; read during the run, because the kernel's ring buffer is finite.
pub(crate) struct PhaseLog {
    readers: Vec<PhaseReader>,
    clock: RunClock,
    /// Flow ids by index of the traffic. Phases of a program's connections belong to no flow.
    flow_ids: Arc<[Option<u32>]>,
}

impl PhaseLog {
    pub(crate) fn new(
        readers: Vec<PhaseReader>,
        clock: RunClock,
        flow_ids: Arc<[Option<u32>]>,
    ) -> Self {
        Self { readers, clock, flow_ids }
    }

    /// Record the phases reported since the last call.
    pub(crate) fn tick(&self, recorder: &mut Recorder<'_>) -> Result<(), HostError> {
        for reader in &self.readers {
            for event in reader.read().context("cannot follow a module")? {
                recorder.event(self.row(&event));
            }
        }
        Ok(())
    }

    fn row(&self, event: &PhaseEvent) -> EventRow {
        let index = own_index(event.local_port).or(own_index(event.remote_port));
        let flow = index.and_then(|index| self.flow_ids.get(index).copied().flatten());
        let phase = event.phase;
        debug!(flow, kind = %phase.kind, local_port = event.local_port, "phase reported");
        let span = (self.clock.at(phase.begin_ns), self.clock.at(phase.end_ns));
        EventRow::phase(phase.kind, span, flow)
    }
}
