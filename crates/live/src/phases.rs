//! What the congestion controls of a run say that they do about announced handovers.

use std::sync::Arc;

use skyhop_kernel::{PhaseReader, Told};
use skyhop_record::{EventRow, Recorder};

use skyhop_host::clock::RunClock;
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::own_index;

/// Reads it while the run goes on: the kernel keeps only so much of what nobody reads.
pub(crate) struct PhaseLog {
    readers: Vec<PhaseReader>,
    clock: RunClock,
    /// By place. What a program's connections do belongs to no flow.
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

    /// Records what was told since the last call.
    pub(crate) fn tick(&self, recorder: &mut Recorder<'_>) -> Result<(), HostError> {
        for reader in &self.readers {
            for told in reader.read().context("cannot follow a module")? {
                recorder.event(self.row(&told));
            }
        }
        Ok(())
    }

    fn row(&self, told: &Told) -> EventRow {
        let index = own_index(told.local_port).or(own_index(told.remote_port));
        let flow = index.and_then(|index| self.flow_ids.get(index).copied().flatten());
        let phase = told.phase;
        let span = (self.clock.at(phase.begin_ns), self.clock.at(phase.end_ns));
        EventRow::phase(phase.kind, span, flow)
    }
}
