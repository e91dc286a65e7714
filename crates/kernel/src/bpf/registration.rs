//! A module's registration: held by this process, or kept by the BPF file system.

use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, MapType, query};
use skyhop_cc::Module;

use super::decisions::DecisionMaps;
use super::object::InKernel;
use super::phases::PhaseReader;
use super::signals::SignalMap;
use crate::entry::offered;
use crate::error::{Context, KernelError};
use crate::names::{held_part, kernel_ships, names_in_kernel, prefixed};
use crate::pins::{self, Pin};

/// How long the kernel may take to forget a name.
const PATIENCE: Duration = Duration::from_secs(2);
/// The only key of a struct_ops map.
const OPS: [u8; 4] = [0; 4];

/// A module that is registered as long as this lives, and on kernels from 6.4 on not a moment longer,
/// however its process ends. On older ones `cc unload` removes what a killed process has left.
#[derive(Debug)]
pub struct Held {
    kernel_name: String,
    signals: Option<SignalMap>,
    phases: MapHandle,
    decisions: Option<DecisionMaps>,
    /// Unregisters when it is dropped, which on kernels without links needs the map's descriptor:
    /// hence before the object.
    _link: Link,
    _object: InKernel,
}

impl Held {
    /// What programs give to `TCP_CONGESTION`.
    pub fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Where its connections look for announcements; `None` where the module has no use for them.
    pub fn signals(&self) -> Option<&SignalMap> {
        self.signals.as_ref()
    }

    /// What its connections say that they do about handovers.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn phases(&self) -> Result<PhaseReader, KernelError> {
        PhaseReader::new(&self.phases)
    }

    /// Where its connections report and look for decisions; `None` where nobody decides for the module.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        self.decisions.as_ref().map(DecisionMaps::try_clone).transpose()
    }
}

pub(super) fn hold(mut loaded: InKernel, kernel_name: String) -> Result<Held, KernelError> {
    let (signals, phases) = (loaded.signals()?, loaded.phases()?);
    let decisions = loaded.decisions()?;
    let link = loaded.attach()?;
    Ok(Held { kernel_name, signals, phases, decisions, _link: link, _object: loaded })
}

/// Registers it until somebody unloads it.
pub(super) fn pin(mut loaded: InKernel, pin: &Pin) -> Result<(), KernelError> {
    // What an attempt that was killed has left.
    pin.remove()?;
    pin.create()?;
    let pinned = pin_parts(&mut loaded, pin);
    if pinned.is_err() {
        pin.remove()?;
    }
    pinned
}

fn pin_parts(loaded: &mut InKernel, pin: &Pin) -> Result<(), KernelError> {
    let action = format!("cannot pin {}", pin.kernel_name);
    if let Some(signals) = loaded.signals()? {
        signals.pin(&pin.signals()).context(&action)?;
    }
    loaded.phases()?.pin(pin.phases()).context(&action)?;
    // Before it is registered, so that a registration is never without its pin.
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

/// The pin of a module, under either of its names.
pub(super) fn pin_of(name: &str) -> Option<Pin> {
    pin_among(&names_in_kernel(name))
}

/// The pin that has one of these names.
pub(super) fn pin_among(names: &[String]) -> Option<Pin> {
    Pin::all()?.into_iter().find(|pin| names.contains(&pin.kernel_name))
}

/// NAME, or skyhop_NAME where the kernel has its own.
pub(super) fn persistent_name(module: &Module) -> Result<String, KernelError> {
    let name = module.name();
    let is_ours = pin_of(name).is_some_and(|pin| pin.kernel_name == name);
    let is_taken = !is_ours && offered()?.iter().any(|taken| taken == name);
    Ok(if is_taken || kernel_ships(name) { prefixed(name) } else { name.to_owned() })
}

/// Removes the registration that has one of these names in the kernel; returns which.
pub(super) fn unregister(names: &[String; 2]) -> Result<String, KernelError> {
    let Some(pin) = pin_among(names) else {
        // A holder's, which on a kernel without links may have outlived it.
        let name = &names[0];
        if held_part(name).is_some() && delete_registration(name)? {
            return Ok(name.clone());
        }
        return Err(not_loaded(name));
    };
    let _alone = pins::lock()?;
    if pin.map().exists() {
        let action = format!("cannot unregister {}", pin.kernel_name);
        let map = MapHandle::from_pinned_path(pin.map()).context(&action)?;
        match map.delete(&OPS) {
            // An attempt that was killed between the pin and the registration.
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

/// Deletes the registration of this name that no link holds; `false`: there is none.
fn delete_registration(kernel_name: &str) -> Result<bool, KernelError> {
    for map in registrations(kernel_name) {
        if map.delete(&OPS).is_ok() {
            wait_until_gone(kernel_name)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a program has registered this name through BPF, as far as the caller may see.
pub fn is_from_bpf(kernel_name: &str) -> bool {
    registrations(kernel_name).next().is_some()
}

fn registrations(kernel_name: &str) -> impl Iterator<Item = MapHandle> {
    let name = [kernel_name.as_bytes(), &[0]].concat();
    let maps = query::MapInfoIter::default().filter(|info| info.ty == MapType::StructOps);
    maps.filter_map(move |info| {
        // Maps come and go while they are looked at.
        let map = MapHandle::from_map_id(info.id).ok()?;
        let value = map.lookup(&OPS, MapFlags::ANY).ok()??;
        value.windows(name.len()).any(|window| window == name).then_some(map)
    })
}

fn wait_until_gone(kernel_name: &str) -> Result<(), KernelError> {
    let asked = Instant::now();
    while offered()?.iter().any(|name| name == kernel_name) {
        if asked.elapsed() > PATIENCE {
            return Err("it is still offered; a live run or another program may hold it")
                .context(&format!("cannot unload {kernel_name}"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
