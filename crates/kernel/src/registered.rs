//! Modules registered for the lifetime of a value, through BPF or a kernel module's file.

use std::time::Duration;

use skyhop_cc::{Decision, Handover, Module, Report};

use crate::error::KernelError;
use crate::module_file::{self, ModuleFile};
use crate::names::check_name_is_free;
use crate::{CALLER, PhaseEvent, Scope, bpf};

/// Module that is registered as long as this value lives. With BPF on Linux 6.4 and newer, and with a kernel module's
/// file, the kernel unregisters it however the process ends; with BPF on older kernels, `cc unload` removes the
/// registration of a killed process.
#[derive(Debug)]
pub struct RegisteredModule(Backend<bpf::BpfRegistration, ModuleFile>);

/// Map in which the connections of a registered module look up announcements.
#[derive(Debug)]
pub struct SignalMap(Backend<bpf::SignalMap, ModuleFile>);

/// Reader of the phases that a module's connections report. A module may have one reader at a time.
#[derive(Debug)]
pub struct PhaseReader(Backend<bpf::PhaseReader, ModuleFile>);

/// Maps of a module's reports and decisions. They may be opened in one thread and read in another.
#[derive(Debug)]
pub struct DecisionMaps(Backend<bpf::DecisionMaps, ModuleFile>);

/// Reader of a module's reports, and writer of decisions.
#[derive(Debug)]
pub struct ReportReader(Backend<bpf::ReportReader, ModuleFile>);

/// Way in which the module is loaded into the kernel: through BPF, or as a kernel module.
#[derive(Debug)]
enum Backend<B, F> {
    Bpf(B),
    File(F),
}

/// Register a module under a unique name until the result is dropped. `parameters` are names and values as in the
/// scenario.
///
/// # Errors
/// A parameter is wrong, the module has a hook that the kernel does not call, or this machine or this build of skyhop
/// cannot load it.
pub fn register(
    module: &'static Module,
    parameters: &[(&str, &str)],
) -> Result<RegisteredModule, KernelError> {
    CALLER.accept(module)?;
    let backend = match module_file::of(module) {
        Some(file) => Backend::File(ModuleFile::register(&file, module, parameters)?),
        None => Backend::Bpf(bpf::register(module, parameters)?),
    };
    Ok(RegisteredModule(backend))
}

/// Register a module as [`register`] does, under the given name, and always through BPF.
///
/// # Errors
/// [`KernelError::WrongName`], [`KernelError::NameTaken`], and the errors of [`register`].
pub fn register_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: &str,
) -> Result<RegisteredModule, KernelError> {
    CALLER.accept(module)?;
    check_name_is_free(kernel_name)?;
    Ok(RegisteredModule(Backend::Bpf(bpf::register_as(module, parameters, kernel_name)?)))
}

/// Compile a user's module for this kernel, unless it has been compiled already.
///
/// # Errors
/// The module has a hook that the kernel does not call, does not compile, or this machine lacks a tool.
pub fn compile(module: &'static Module) -> Result<(), KernelError> {
    CALLER.accept(module)?;
    if module.file().is_some() && module_file::of(module).is_none() {
        skyhop_ccfile::bpf_objects(module)?;
    }
    Ok(())
}

impl RegisteredModule {
    /// Name for the socket option `TCP_CONGESTION`.
    pub fn kernel_name(&self) -> &str {
        match &self.0 {
            Backend::Bpf(module) => module.kernel_name(),
            Backend::File(file) => file.kernel_name(),
        }
    }

    /// Map of announcements for the module's connections; `None` if the module does not use announcements.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub fn signals(&self) -> Result<Option<SignalMap>, KernelError> {
        let signals = match &self.0 {
            Backend::Bpf(module) => module.signals().map(|map| map.try_clone().map(Backend::Bpf)),
            Backend::File(file) => {
                file.uses_announcements().then(|| file.try_clone().map(Backend::File))
            }
        };
        signals.map(|backend| backend.map(SignalMap)).transpose()
    }

    /// Open a reader of the phases that the module's connections report.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        match &self.0 {
            Backend::Bpf(module) => module.phases().map(Backend::Bpf).map(PhaseReader),
            Backend::File(file) => file.try_clone().map(Backend::File).map(PhaseReader),
        }
    }

    /// Maps of the module's reports and decisions; `None` if the module does not take decisions. The module queues
    /// reports from this call on.
    ///
    /// # Errors
    /// The process has too many open descriptors, or memory is exhausted.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        let backend = match &self.0 {
            Backend::Bpf(module) => module.decisions()?.map(Backend::Bpf),
            Backend::File(file) if file.reports() => {
                file.read_reports()?;
                Some(Backend::File(file.try_clone()?))
            }
            Backend::File(_) => None,
        };
        Ok(backend.map(DecisionMaps))
    }
}

impl DecisionMaps {
    /// Open the reader. A module may have one reader at a time.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn read(self) -> Result<ReportReader, KernelError> {
        let backend = match self.0 {
            Backend::Bpf(maps) => Backend::Bpf(maps.read()?),
            Backend::File(file) => Backend::File(file),
        };
        Ok(ReportReader(backend))
    }
}

impl ReportReader {
    /// Return the reports since the last call, in order; if there are none, wait up to `timeout` for the first.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<Report>, KernelError> {
        match &self.0 {
            Backend::Bpf(reader) => reader.wait(timeout),
            Backend::File(file) => file.wait_for_reports(timeout),
        }
    }

    /// Write the decision for the connection that has reported with this id.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn decide(&self, id: u64, decision: &Decision) -> Result<(), KernelError> {
        match &self.0 {
            Backend::Bpf(reader) => reader.decide(id, decision),
            Backend::File(file) => file.decide(id, decision),
        }
    }

    /// Remove the decision for a closed connection.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn forget(&self, id: u64) -> Result<(), KernelError> {
        match &self.0 {
            Backend::Bpf(reader) => reader.forget(id),
            Backend::File(file) => file.decide(id, &Decision::default()),
        }
    }
}

impl SignalMap {
    /// Announce `handover` to the connections in `scope`, in place of the previous announcement to that scope.
    ///
    /// The times in `handover` are of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// The map is full (1024 scopes).
    pub fn announce(&self, scope: Scope, handover: &Handover) -> Result<(), KernelError> {
        match &self.0 {
            Backend::Bpf(map) => map.announce(scope, handover),
            Backend::File(file) => file.announce(scope, handover),
        }
    }

    /// Withdraw the announcement in `scope`, if there is one.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn withdraw(&self, scope: Scope) -> Result<(), KernelError> {
        match &self.0 {
            Backend::Bpf(map) => map.withdraw(scope),
            Backend::File(file) => file.announce(scope, &Handover::default()),
        }
    }
}

impl PhaseReader {
    /// Return the phases reported since the last call, in order.
    ///
    /// # Errors
    /// The kernel refuses the operation.
    pub fn read(&self) -> Result<Vec<PhaseEvent>, KernelError> {
        match &self.0 {
            Backend::Bpf(reader) => reader.read(),
            Backend::File(file) => file.read_phases(),
        }
    }
}

/// Maps of announcements of all modules loaded by [`load`](crate::load), with the modules' names in the kernel.
///
/// # Errors
/// The caller lacks the privileges.
pub fn pinned_signal_maps() -> Result<Vec<(String, SignalMap)>, KernelError> {
    let maps = bpf::pinned_signal_maps()?;
    Ok(maps.into_iter().map(|(name, map)| (name, SignalMap(Backend::Bpf(map)))).collect())
}

/// Open a reader of the phases of a module loaded by [`load`](crate::load); `name` is any of the
/// module's names.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller lacks the privileges.
pub fn pinned_phases(name: &str) -> Result<PhaseReader, KernelError> {
    bpf::pinned_phases(name).map(Backend::Bpf).map(PhaseReader)
}
