//! BPF object of a module: opened, configured and loaded into the kernel.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, MemberAttr, Struct};
use libbpf_rs::libbpf_sys::{BPF_F_LINK, bpf_prog_get_info_by_fd, bpf_prog_info};
use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut, OpenObject,
};
use skyhop_cc::{BpfObjects, Module};

use super::decisions::DecisionMaps;
use super::features::Features;
use super::log;
use super::signals::SignalMap;
use crate::ProgramReport;
use crate::error::{Context, KernelError};

/// Size of a congestion control's name in the kernel, with its zero byte (`TCP_CA_NAME_MAX`).
const NAME_MAX: usize = 16;

/// BPF object that is configured but not loaded.
pub(super) struct Prepared {
    module: &'static Module,
    object: OpenObject,
    features: Features,
}

impl Prepared {
    /// Open the module's object and set its constants, parameters and name.
    pub(super) fn new(
        module: &'static Module,
        parameters: &[(&str, &str)],
        kernel_name: &str,
        features: Features,
    ) -> Result<Self, KernelError> {
        let values = module.values(parameters)?;
        let objects = objects_of(module)?;
        let elf = if features.has_four_arguments { objects.current } else { objects.before_6_10 };
        log::capture();
        let mut builder = ObjectBuilder::default();
        let object = builder
            .name(module.name())
            .and_then(|builder| builder.open_memory(elf))
            .map_err(|error| log::last_line().unwrap_or_else(|| error.to_string()))
            .context(&format!("cannot open the object of {}", module.origin()))?;
        let mut prepared = Self { module, object, features };
        prepared.set_constant("skyhop_hz_of_kernel", &features.hz.to_ne_bytes())?;
        for (param, value) in module.params().zip(values) {
            let name = format!("skyhop_param_{}", param.name);
            prepared.set_constant(&name, &value.to_ne_bytes())?;
        }
        prepared.set_ops(kernel_name)?;
        Ok(prepared)
    }

    /// Load the object into the kernel, through the verifier, without registering it.
    pub(super) fn load(self) -> Result<LoadedObject, KernelError> {
        let Self { module, object, features } = self;
        log::capture();
        match object.load() {
            Ok(object) => Ok(LoadedObject { module, object, features }),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
                match log::last_line() {
                    // The verifier returns EACCES too, but with a log.
                    Some(line) if !line.contains("EPERM") && !line.starts_with("libbpf") => {
                        Err(KernelError::Refused { origin: module.origin(), reason: line })
                    }
                    _ => Err(KernelError::NotRoot),
                }
            }
            Err(error) => {
                let reason = log::last_line().unwrap_or_else(|| error.to_string());
                Err(KernelError::Refused { origin: module.origin(), reason })
            }
        }
    }

    /// Set a constant of the C file, unless the compiler has removed it as unused.
    fn set_constant(&mut self, name: &str, value: &[u8]) -> Result<(), KernelError> {
        let Some(offset) = self.offset_of_constant(name)? else { return Ok(()) };
        let mut rodata = self.map(|map| map.name().as_encoded_bytes().ends_with(b".rodata"))?;
        let place = rodata
            .initial_value_mut()
            .and_then(|bytes| bytes.get_mut(offset..offset + value.len()))
            .ok_or("the section is too small")
            .context(&format!("cannot set {name}"))?;
        place.copy_from_slice(value);
        Ok(())
    }

    fn offset_of_constant(&self, name: &str) -> Result<Option<usize>, KernelError> {
        let btf = self.btf()?;
        let Some(section) = btf.type_by_name::<DataSec<'_>>(".rodata") else { return Ok(None) };
        let variable = section.iter().find(|variable| {
            let named = btf.type_by_id::<libbpf_rs::btf::BtfType<'_>>(variable.ty);
            named.and_then(|named| named.name()) == Some(OsStr::new(name))
        });
        Ok(variable.map(|variable| variable.offset as usize))
    }

    /// Set the name in `tcp_congestion_ops`, and request a link if the kernel supports links.
    fn set_ops(&mut self, kernel_name: &str) -> Result<(), KernelError> {
        let offset = self.offset_of_name()?;
        let flags = if self.features.has_links { BPF_F_LINK } else { 0 };
        let mut ops = self.map(|map| map.map_type() == MapType::StructOps)?;
        ops.set_map_flags(flags).context("cannot set the flags of the module's registration")?;
        let place = ops
            .initial_value_mut()
            .and_then(|bytes| bytes.get_mut(offset..offset + NAME_MAX))
            .ok_or("tcp_congestion_ops is too small")
            .context("cannot name the module")?;
        place.fill(0);
        let name = kernel_name.as_bytes();
        place[..name.len().min(NAME_MAX - 1)]
            .copy_from_slice(&name[..name.len().min(NAME_MAX - 1)]);
        Ok(())
    }

    fn offset_of_name(&self) -> Result<usize, KernelError> {
        let btf = self.btf()?;
        let ops = btf.type_by_name::<Struct<'_>>("tcp_congestion_ops");
        let bits = ops.and_then(|ops| {
            let name = ops.iter().find(|member| member.name.is_some_and(|name| name == "name"))?;
            match name.attr {
                MemberAttr::Normal { offset } => Some(offset),
                MemberAttr::BitField { .. } => None,
            }
        });
        bits.map(|bits| bits as usize / 8)
            .ok_or("tcp_congestion_ops has no field `name`")
            .context("cannot name the module")
    }

    fn btf(&self) -> Result<Btf<'_>, KernelError> {
        // SAFETY: the object lives as long as `self`, from which the result borrows.
        let object = unsafe { self.object.as_libbpf_object().as_ref() };
        let action = format!("cannot read the type information of {}", self.module.origin());
        Btf::from_bpf_object(object).context(&action)?.ok_or("there is none").context(&action)
    }

    fn map(
        &mut self,
        matches: impl Fn(&OpenMapMut<'_>) -> bool,
    ) -> Result<OpenMapMut<'_>, KernelError> {
        let action = format!("cannot use the object of {}", self.module.origin());
        self.object.maps_mut().find(matches).ok_or("a map is missing").context(&action)
    }
}

/// BPF objects of a module: for a module of skyhop from skyhop's build, for a user's file compiled
/// by this call.
fn objects_of(module: &'static Module) -> Result<BpfObjects, KernelError> {
    match module.file() {
        Some(_) => Ok(skyhop_ccfile::bpf_objects(module)?),
        None => module.bpf_objects().ok_or(KernelError::NotCompiled(module.name())),
    }
}

/// Object loaded into the kernel but not registered; unloaded on drop.
#[derive(Debug)]
pub(super) struct LoadedObject {
    module: &'static Module,
    object: Object,
    features: Features,
}

impl LoadedObject {
    pub(super) fn has_links(&self) -> bool {
        self.features.has_links
    }

    /// Verifier's reports about the module's hooks, in the order of the file.
    pub(super) fn reports(&self) -> Result<Vec<ProgramReport>, KernelError> {
        self.object
            .progs()
            .map(|program| {
                let info = program_info(&program.as_fd())
                    .context("cannot ask the kernel about a program")?;
                Ok(ProgramReport {
                    name: program.name().to_string_lossy().into_owned(),
                    instructions: program.insn_cnt() as u32,
                    verified: Some(info.verified_insns).filter(|count| *count > 0),
                })
            })
            .collect()
    }

    /// Register the module, so that the kernel offers it.
    pub(super) fn attach(&mut self) -> Result<Link, KernelError> {
        log::capture();
        let action = format!("cannot register {}", self.module.name());
        let ops = self.object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
        let mut ops = ops.ok_or("it has no tcp_congestion_ops").context(&action)?;
        ops.attach_struct_ops().context(&action)
    }

    /// Struct_ops map of the module; on a kernel without links it keeps the module registered.
    pub(super) fn ops(&self) -> Result<MapHandle, KernelError> {
        self.handle(|map| map.map_type() == MapType::StructOps)
    }

    /// Map of announcements for the module's connections; `None` if the module does not use announcements.
    pub(super) fn signals(&self) -> Result<Option<SignalMap>, KernelError> {
        let matches = |map: &libbpf_rs::Map<'_>| map.name() == OsStr::new("skyhop_signals");
        if !self.object.maps().any(|map| matches(&map)) {
            return Ok(None);
        }
        self.handle(matches).map(|map| Some(SignalMap::new(map)))
    }

    /// BPF map in which the connections that use the congestion control report their phases (hold, drain,
    /// probe-rtt).
    pub(super) fn phases(&self) -> Result<MapHandle, KernelError> {
        self.handle(|map| map.name() == OsStr::new("skyhop_phases"))
    }

    /// Maps of the module's reports and decisions; `None` if the module does not take decisions.
    pub(super) fn decisions(&self) -> Result<Option<DecisionMaps>, KernelError> {
        let named = |name| move |map: &libbpf_rs::Map<'_>| map.name() == OsStr::new(name);
        if !self.object.maps().any(|map| named("skyhop_reports")(&map)) {
            return Ok(None);
        }
        let reports = self.handle(named("skyhop_reports"))?;
        Ok(Some(DecisionMaps::new(reports, self.handle(named("skyhop_decisions"))?)))
    }

    fn handle(
        &self,
        matches: impl Fn(&libbpf_rs::Map<'_>) -> bool,
    ) -> Result<MapHandle, KernelError> {
        let action = format!("cannot use the maps of {}", self.module.name());
        let map = self.object.maps().find(matches).ok_or("one is missing").context(&action)?;
        MapHandle::try_from(&map).context(&action)
    }
}

fn program_info(program: &impl AsRawFd) -> Result<bpf_prog_info, nix::errno::Errno> {
    let mut info = bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes, the size of `info`.
    let asked =
        unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    nix::errno::Errno::result(asked).map(|_| info)
}

#[cfg(test)]
mod tests {
    use libbpf_rs::MapFlags;

    use super::*;

    #[test]
    fn parameters_and_the_clock_reach_the_kernel() {
        let cubic = Module::find("cubic").unwrap();
        let features = match Features::probe() {
            Ok(features) if cubic.bpf_objects().is_some() => features,
            Ok(_) => return skyhop_needs::missing("clang", "built without clang"),
            Err(error) => return skyhop_needs::missing("kernel", error),
        };
        let prepared = Prepared::new(cubic, &[("beta", "0.5")], "cubic_test", features).unwrap();
        let offset = |name| prepared.offset_of_constant(name).unwrap().unwrap();
        let (beta, hz) = (offset("skyhop_param_beta"), offset("skyhop_hz_of_kernel"));
        let loaded = prepared.load().unwrap();
        let matches =
            |map: &libbpf_rs::Map<'_>| map.name().as_encoded_bytes().ends_with(b".rodata");
        let rodata =
            loaded.handle(matches).unwrap().lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        assert_eq!(rodata[beta..beta + 8], 512_u64.to_ne_bytes());
        assert_eq!(rodata[hz..hz + 4], features.hz.to_ne_bytes());
        assert!((100..=1000).contains(&features.hz), "{}", features.hz);
    }
}
