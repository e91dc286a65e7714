//! What is registered for as long as its holder lives, however it got into the kernel.

use std::time::Duration;

use skyhop_cc::{Decision, Handover, Module, Report};

use crate::error::KernelError;
use crate::module_file::{self, ModuleFile};
use crate::names::refuse_unless_free;
use crate::{CALLER, Scope, Told, bpf};

/// A module that is registered as long as this lives. Where it came through BPF from Linux 6.4 on, and where it has a
/// file, it does not stay a moment longer, however its process ends; else `cc unload` removes what a killed process has left.
#[derive(Debug)]
pub struct Held(Way<bpf::Held, ModuleFile>);

/// Where the connections of a registered module look for announcements.
#[derive(Debug)]
pub struct SignalMap(Way<bpf::SignalMap, ModuleFile>);

/// Reads what the connections of a module tell. There may be one reader of a module at a time.
#[derive(Debug)]
pub struct PhaseReader(Way<bpf::PhaseReader, ModuleFile>);

/// Where a module's connections report, and look for decisions. It may be opened in one thread and read in another.
#[derive(Debug)]
pub struct DecisionMaps(Way<bpf::DecisionMaps, ModuleFile>);

/// Reads what a module's connections report, and decides.
#[derive(Debug)]
pub struct ReportReader(Way<bpf::ReportReader, ModuleFile>);

/// How it got into the kernel.
#[derive(Debug)]
enum Way<B, F> {
    Bpf(B),
    File(F),
}

/// Registers a module under a name of its own for as long as the caller lives. `parameters` are names and texts as in the
/// scenario.
///
/// # Errors
/// Wrong parameters, a hook that nobody calls, or what this machine or this build of skyhop lacks.
pub fn hold(module: &'static Module, parameters: &[(&str, &str)]) -> Result<Held, KernelError> {
    CALLER.accept(module)?;
    let way = match module_file::of(module) {
        Some(file) => Way::File(ModuleFile::register(&file, module, parameters)?),
        None => Way::Bpf(bpf::hold(module, parameters)?),
    };
    Ok(Held(way))
}

/// Registers a module likewise, under a name that the caller has chosen. It gets there through BPF alone.
///
/// # Errors
/// [`KernelError::WrongName`], [`KernelError::NameTaken`], and those of [`hold`].
pub fn hold_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: &str,
) -> Result<Held, KernelError> {
    CALLER.accept(module)?;
    refuse_unless_free(kernel_name)?;
    Ok(Held(Way::Bpf(bpf::hold_as(module, parameters, kernel_name)?)))
}

/// Compiles a module that is a file of the user's for this kernel, where that is yet to be done.
///
/// # Errors
/// A hook that nobody calls, what is wrong with the file, or what this machine lacks.
pub fn compile(module: &'static Module) -> Result<(), KernelError> {
    CALLER.accept(module)?;
    if module.file().is_some() && module_file::of(module).is_none() {
        skyhop_ccfile::bpf_objects(module)?;
    }
    Ok(())
}

impl Held {
    /// What programs give to `TCP_CONGESTION`.
    pub fn kernel_name(&self) -> &str {
        match &self.0 {
            Way::Bpf(held) => held.kernel_name(),
            Way::File(file) => file.kernel_name(),
        }
    }

    /// Where its connections look for announcements; `None` where the module has no use for them.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub fn signals(&self) -> Result<Option<SignalMap>, KernelError> {
        let signals = match &self.0 {
            Way::Bpf(held) => held.signals().map(|map| map.try_clone().map(Way::Bpf)),
            Way::File(file) => file.hears().then(|| file.try_clone().map(Way::File)),
        };
        signals.map(|way| way.map(SignalMap)).transpose()
    }

    /// What its connections say that they do about handovers.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        match &self.0 {
            Way::Bpf(held) => held.phases().map(Way::Bpf).map(PhaseReader),
            Way::File(file) => file.try_clone().map(Way::File).map(PhaseReader),
        }
    }

    /// Where its connections report and look for decisions; `None` where nobody decides for the module. What they report is
    /// kept from now on.
    ///
    /// # Errors
    /// Too many descriptors are open, or too little memory is free.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        let way = match &self.0 {
            Way::Bpf(held) => held.decisions()?.map(Way::Bpf),
            Way::File(file) if file.reports() => {
                file.read_reports()?;
                Some(Way::File(file.try_clone()?))
            }
            Way::File(_) => None,
        };
        Ok(way.map(DecisionMaps))
    }
}

impl DecisionMaps {
    /// Begins to read. There may be one reader of a module at a time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        let way = match self.0 {
            Way::Bpf(maps) => Way::Bpf(maps.read()?),
            Way::File(file) => Way::File(file),
        };
        Ok(ReportReader(way))
    }
}

impl ReportReader {
    /// What was reported since the last call, in its order; waits for it as long as `timeout`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<Report>, KernelError> {
        match &self.0 {
            Way::Bpf(reader) => reader.wait(timeout),
            Way::File(file) => file.wait_for_reports(timeout),
        }
    }

    /// Decides for the connection that has reported with this id.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn decide(&self, id: u64, decision: &Decision) -> Result<(), KernelError> {
        match &self.0 {
            Way::Bpf(reader) => reader.decide(id, decision),
            Way::File(file) => file.decide(id, decision),
        }
    }

    /// Forgets what was decided for a connection that is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn forget(&self, id: u64) -> Result<(), KernelError> {
        match &self.0 {
            Way::Bpf(reader) => reader.forget(id),
            Way::File(file) => file.decide(id, &Decision::default()),
        }
    }
}

impl SignalMap {
    /// Announces `handover` to the connections in `scope`, instead of what was announced before.
    ///
    /// Its times are those of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// There is no more room (1024 scopes).
    pub fn announce(&self, scope: Scope, handover: &Handover) -> Result<(), KernelError> {
        match &self.0 {
            Way::Bpf(map) => map.announce(scope, handover),
            Way::File(file) => file.announce(scope, handover),
        }
    }

    /// Takes back what was announced in `scope`, if anything was.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn withdraw(&self, scope: Scope) -> Result<(), KernelError> {
        match &self.0 {
            Way::Bpf(map) => map.withdraw(scope),
            Way::File(file) => file.announce(scope, &Handover::default()),
        }
    }
}

impl PhaseReader {
    /// What was told since the last call, in the order in which it was told.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self) -> Result<Vec<Told>, KernelError> {
        match &self.0 {
            Way::Bpf(reader) => reader.read(),
            Way::File(file) => file.read_told(),
        }
    }
}

/// The announcements of the modules that [`load`](crate::load) loaded, by the modules' names in the kernel.
///
/// # Errors
/// The caller may not.
pub fn pinned_signal_maps() -> Result<Vec<(String, SignalMap)>, KernelError> {
    let maps = bpf::pinned_signal_maps()?;
    Ok(maps.into_iter().map(|(name, map)| (name, SignalMap(Way::Bpf(map)))).collect())
}

/// What the connections of a module tell that [`load`](crate::load) loaded, by any of its names.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller may not.
pub fn pinned_phases(name: &str) -> Result<PhaseReader, KernelError> {
    bpf::pinned_phases(name).map(Way::Bpf).map(PhaseReader)
}
