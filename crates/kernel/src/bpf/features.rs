//! Features of the running kernel, read from its type information (BTF).

use std::path::Path;

use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, ReferencesType};

use crate::error::{Context, KernelError};
use crate::privilege;
use crate::ticks::ticks_per_second;

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Kernel features on which loading depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Features {
    /// Whether registrations can have BPF links (Linux 6.4 and newer): such a registration ends
    /// when its link is closed.
    pub(super) has_links: bool,
    /// Whether `cong_control` takes four arguments (Linux 6.10 and newer) instead of two.
    pub(super) has_four_arguments: bool,
    /// Ticks per second of jiffies.
    pub(super) hz: u32,
}

impl Features {
    /// Check that this process has the capabilities for loading.
    pub(super) fn may_load() -> Result<(), KernelError> {
        if privilege::may_load() { Ok(()) } else { Err(KernelError::NotRoot) }
    }

    /// Determine the features of the running kernel.
    pub(super) fn probe() -> Result<Self, KernelError> {
        Self::may_load()?;
        if !Path::new(BTF).exists() {
            return Err(KernelError::NoBtf(BTF));
        }
        let btf = Btf::from_vmlinux().context("cannot read the kernel's type information")?;
        if btf.type_by_name::<Struct<'_>>("bpf_struct_ops_tcp_congestion_ops").is_none() {
            return Err(KernelError::NoStructOps);
        }
        Ok(Self {
            has_links: has_links(&btf),
            has_four_arguments: cong_control_arguments(&btf) == Some(4),
            hz: ticks_per_second()?,
        })
    }
}

/// Whether struct_ops support BPF links: the kernel's attach type `BPF_STRUCT_OPS` was introduced with them.
fn has_links(btf: &Btf<'_>) -> bool {
    let kinds = btf.type_by_name::<Enum<'_>>("bpf_attach_type");
    kinds.is_some_and(|kinds| {
        kinds.iter().any(|kind| kind.name.is_some_and(|name| name == "BPF_STRUCT_OPS"))
    })
}

fn cong_control_arguments(btf: &Btf<'_>) -> Option<usize> {
    let ops = btf.type_by_name::<Struct<'_>>("tcp_congestion_ops")?;
    let member = ops.iter().find(|member| member.name.is_some_and(|n| n == "cong_control"))?;
    let function = btf.type_by_id::<Ptr<'_>>(member.ty)?.referenced_type();
    FuncProto::try_from(function).ok().map(|function| function.len())
}
