//! Registrations of modules: owned by this process, or pinned in the BPF file system.

use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, MapType, query};
use skyhop_cc::Module;

use super::decisions::DecisionMaps;
use super::object::LoadedObject;
use super::phases::PhaseReader;
use super::signals::SignalMap;
use crate::entry::offered;
use crate::error::{Context, KernelError};
use crate::names::{kernel_ships, names_in_kernel, prefixed, unique_name_stem};
use crate::pins::{self, Pin};

/// Longest time to wait until the kernel no longer offers an unregistered name.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(2);
/// The only key of a struct_ops map.
const OPS: [u8; 4] = [0; 4];

/// Module that is registered as long as this value lives. On Linux 6.4 and newer the kernel unregisters it however
/// the process ends; on older kernels `cc unload` removes the registration of a killed process.
#[derive(Debug)]
pub struct BpfRegistration {
    kernel_name: String,
    signals: Option<SignalMap>,
    phases: MapHandle,
    decisions: Option<DecisionMaps>,
    /// Link that unregisters the module on drop. It is declared, and so dropped, before the object: on a kernel
    /// without links, unregistering needs the map's descriptor.
    _link: Link,
    _object: LoadedObject,
}

impl BpfRegistration {
    /// Name for the socket option `TCP_CONGESTION`.
    pub fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Map of announcements for the module's connections; `None` if the module does not use announcements.
    pub fn signals(&self) -> Option<&SignalMap> {
        self.signals.as_ref()
    }

    /// Open a reader of the phases that the module's connections report.
    ///
    /// # Errors
    /// The kernel refuses the ring buffer.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        PhaseReader::new(&self.phases)
    }

    /// Maps of the module's reports and decisions; `None` if the module does not take decisions.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        self.decisions.as_ref().map(DecisionMaps::try_clone).transpose()
    }
}

pub(super) fn attach(
    mut loaded: LoadedObject,
    kernel_name: String,
) -> Result<BpfRegistration, KernelError> {
    let (signals, phases) = (loaded.signals()?, loaded.phases()?);
    let decisions = loaded.decisions()?;
    let link = loaded.attach()?;
    Ok(BpfRegistration { kernel_name, signals, phases, decisions, _link: link, _object: loaded })
}

/// Register a module and pin it, so that it stays registered until it is unloaded.
pub(super) fn pin(mut loaded: LoadedObject, pin: &Pin) -> Result<(), KernelError> {
    // Remove what an earlier, killed process may have left.
    pin.remove()?;
    pin.create()?;
    let pinned = pin_parts(&mut loaded, pin);
    if pinned.is_err() {
        pin.remove()?;
    }
    pinned
}

fn pin_parts(loaded: &mut LoadedObject, pin: &Pin) -> Result<(), KernelError> {
    let action = format!("cannot pin {}", pin.kernel_name);
    if let Some(signals) = loaded.signals()? {
        signals.pin(&pin.signals()).context(&action)?;
    }
    loaded.phases()?.pin(pin.phases()).context(&action)?;
    // Pin the map before registering, so that a registration without links always has its pin.
    if !loaded.has_links() {
        loaded.ops()?.pin(pin.map()).context(&action)?;
    }
    let mut link = loaded.attach()?;
    if loaded.has_links() {
        return link.pin(pin.link()).context(&action);
    }
    link.disconnect();
    Ok(())
}

/// Pin of a module, by its name with or without the prefix.
pub(super) fn pin_of(name: &str) -> Option<Pin> {
    pin_among(&names_in_kernel(name))
}

/// Pin that has one of these names.
pub(super) fn pin_among(names: &[String]) -> Option<Pin> {
    Pin::all()?.into_iter().find(|pin| names.contains(&pin.kernel_name))
}

/// Name under which `cc load` registers a module: NAME, or skyhop_NAME if the kernel has an algorithm NAME.
pub(super) fn persistent_name(module: &Module) -> Result<String, KernelError> {
    let name = module.name();
    let is_ours = pin_of(name).is_some_and(|pin| pin.kernel_name == name);
    let is_taken = !is_ours && offered()?.iter().any(|taken| taken == name);
    Ok(if is_taken || kernel_ships(name) { prefixed(name) } else { name.to_owned() })
}

/// Remove the registration that has one of these names in the kernel; return the name that it had.
pub(super) fn unregister(names: &[String; 2]) -> Result<String, KernelError> {
    let Some(pin) = pin_among(names) else {
        // On a kernel without links, the registration of a killed process may remain.
        let name = &names[0];
        if unique_name_stem(name).is_some() && delete_registration(name)? {
            return Ok(name.clone());
        }
        return Err(not_loaded(name));
    };
    let _alone = pins::lock()?;
    if pin.map().exists() {
        let action = format!("cannot unregister {}", pin.kernel_name);
        let map = MapHandle::from_pinned_path(pin.map()).context(&action)?;
        match map.delete(&OPS) {
            // A process was killed between the creation of the pin and the registration.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            deleted => deleted.context(&action)?,
        }
    }
    pin.remove()?;
    wait_until_gone(&pin.kernel_name)?;
    Ok(pin.kernel_name)
}

pub(super) fn not_loaded(name: &str) -> KernelError {
    let loaded = Pin::all().unwrap_or_default();
    let loaded: Vec<_> = loaded.into_iter().map(|pin| pin.kernel_name).collect();
    let loaded = if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") };
    KernelError::NotLoaded { name: name.to_owned(), loaded }
}

/// Delete the registration of this name that has no link; return false if there is none.
fn delete_registration(kernel_name: &str) -> Result<bool, KernelError> {
    for map in registrations(kernel_name) {
        if map.delete(&OPS).is_ok() {
            wait_until_gone(kernel_name)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a program has registered this name through BPF, as far as the caller may inspect BPF maps.
pub fn is_from_bpf(kernel_name: &str) -> bool {
    registrations(kernel_name).next().is_some()
}

fn registrations(kernel_name: &str) -> impl Iterator<Item = MapHandle> {
    let name = [kernel_name.as_bytes(), &[0]].concat();
    let maps = query::MapInfoIter::default().filter(|info| info.ty == MapType::StructOps);
    maps.filter_map(move |info| {
        // A map may be removed during the iteration.
        let map = MapHandle::from_map_id(info.id).ok()?;
        let value = map.lookup(&OPS, MapFlags::ANY).ok()??;
        value.windows(name.len()).any(|window| window == name).then_some(map)
    })
}

fn wait_until_gone(kernel_name: &str) -> Result<(), KernelError> {
    let asked = Instant::now();
    while offered()?.iter().any(|name| name == kernel_name) {
        if asked.elapsed() > UNREGISTER_TIMEOUT {
            return Err("the kernel still offers it; end the live run or program that uses it")
                .context(&format!("cannot unload {kernel_name}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
