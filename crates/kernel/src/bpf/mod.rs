//! Loading of congestion controls with libbpf.

mod decisions;
mod features;
mod log;
mod object;
mod phases;
mod registration;
mod ring;
mod signals;

use skyhop_cc::Module;
use skyhop_model::cc_language;
use tracing::info;

use crate::entry::{offered, unused_name};
use crate::error::KernelError;
use crate::names::{module_of, names_in_kernel, unique_name_stem};
use crate::pins::{self, Pin};
use crate::{CALLER, Loaded, ProgramReport, Unloaded};

use features::Features;
use object::Prepared;

pub use decisions::{DecisionMaps, ReportReader};
pub use phases::{PhaseReader, pinned_phases};
pub use registration::{BpfRegistration, is_from_bpf};
pub use signals::{SignalMap, pinned_signal_maps};

/// Run the verifier on a module without registering it.
///
/// # Errors
/// [`KernelError::Refused`]; the module has a hook that the kernel does not call; or this machine or this build of
/// skyhop cannot load modules.
pub fn check(module: &'static Module) -> Result<Vec<ProgramReport>, KernelError> {
    CALLER.accept(module)?;
    let features = Features::probe()?;
    let name = registration::persistent_name(module)?;
    Prepared::new(module, &[], &name, features)?.load()?.reports()
}

/// Load a module until it is unloaded. `parameters` are names and values as in the scenario.
///
/// # Errors
/// [`KernelError::AlreadyLoaded`]; a parameter is wrong; the module has a hook that the kernel does not call; or this
/// machine or this build of skyhop cannot load modules.
pub fn load(module: &'static Module, parameters: &[(&str, &str)]) -> Result<Loaded, KernelError> {
    CALLER.accept(module)?;
    let features = Features::probe()?;
    let mounted_bpffs = pins::ensure_bpffs()?;
    pins::clean_up(&offered()?);
    let _alone = pins::lock()?;
    let offered = offered()?;
    let pin = registration::pin_of(module.name()).filter(|pin| pin.is_complete(&offered));
    if let Some(pin) = pin {
        let (module, kernel_name) = (module.name().to_owned(), pin.kernel_name);
        return Err(KernelError::AlreadyLoaded { module, kernel_name });
    }
    let kernel_name = registration::persistent_name(module)?;
    let loaded = Prepared::new(module, parameters, &kernel_name, features)?.load()?;
    registration::pin(loaded, &Pin::of(&kernel_name))?;
    info!(kernel_name, mounted_bpffs, "module registered and pinned");
    Ok(Loaded { kernel_name, mounted_bpffs })
}

/// Register a module under a unique name until the result is dropped.
///
/// # Errors
/// A parameter is wrong, or this machine or this build of skyhop cannot load modules.
pub fn register(
    module: &'static Module,
    parameters: &[(&str, &str)],
) -> Result<BpfRegistration, KernelError> {
    register_with(module, parameters, Features::probe()?)
}

/// Register a module under the given name until the result is dropped.
///
/// # Errors
/// The errors of [`register`].
pub fn register_as(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: &str,
) -> Result<BpfRegistration, KernelError> {
    load_and_register(module, parameters, kernel_name.to_owned(), Features::probe()?)
}

fn register_with(
    module: &'static Module,
    parameters: &[(&str, &str)],
    features: Features,
) -> Result<BpfRegistration, KernelError> {
    load_and_register(module, parameters, unused_name(module)?, features)
}

fn load_and_register(
    module: &'static Module,
    parameters: &[(&str, &str)],
    kernel_name: String,
    features: Features,
) -> Result<BpfRegistration, KernelError> {
    let loaded = Prepared::new(module, parameters, &kernel_name, features)?.load()?;
    registration::attach(loaded, kernel_name)
}

/// Unload a module that [`load`] loaded, or remove the registration that a killed process left on a kernel without
/// links; `name` is any of the module's names. Sockets that use the module keep it until they are closed.
///
/// # Errors
/// [`KernelError::NotLoaded`], or the caller lacks the privileges.
pub fn unload(name: &str) -> Result<Unloaded, KernelError> {
    pins::clean_up(&offered()?);
    let names = names_in_kernel(name);
    let is_there =
        registration::pin_among(&names).is_some() || unique_name_stem(&names[0]).is_some();
    if !is_there && cc_language(name).is_none() {
        module_of(name)?;
    }
    Features::may_load()?;
    let kernel_name = registration::unregister(&names)?;
    info!(kernel_name, "module unregistered and unpinned");
    let census = crate::sockets_by_cc().ok();
    let sockets = census.map(|census| census.get(&kernel_name).copied().unwrap_or(0));
    Ok(Unloaded { kernel_name, sockets })
}

#[cfg(test)]
mod tests;
