//! The chart's pod and its volume.

use super::Release;
use crate::convert::input::Input;
use serde_json::{Map, Value, json};

/// The group of the stock image, which ours has by default as well.
const GROUP: u64 = 2171;
/// Directories in which a user's volume may not be.
const TAKEN: [&str; 11] = [
    "/etc/ziti",
    "/tmp",
    "/run",
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
];

const START_SCRIPT: &str =
    "not carried over: it is for the stock image's start script, which is not used here";

/// `resources`, and all that goes into `spec.pod`.
pub(super) fn pod(release: &mut Release, input: &mut Input, mode: &str) {
    if let Some(resources) = input.take("resources") {
        release.set("resources", resources);
    }
    let same = [
        ("nodeSelector", "nodeSelector"),
        ("tolerations", "tolerations"),
        ("affinity", "affinity"),
        ("podAnnotations", "annotations"),
        ("podLabels", "labels"),
        ("priorityClassName", "priorityClassName"),
        ("image.pullPolicy", "imagePullPolicy"),
        ("image.pullSecrets", "imagePullSecrets"),
    ];
    for (key, ours) in same {
        if let Some(value) = input.take(key) {
            release.pod(ours, value);
        }
    }
    if let Some(secrets) = input.take("imagePullSecrets") {
        release.pod("imagePullSecrets", secrets);
    }
    environment(release, input);
    volumes(release, input);
    contexts(release, input, mode);
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if input.take(key).is_some() {
            release.note(
                key,
                "not carried over: the sidecar says when the router is ready, and nothing \
                    else is probed",
            );
        }
    }
    for key in [
        "image.command",
        "image.args",
        "image.additionalArgs",
        "configMountDir",
        "configFile",
        "identityMountDir",
        "execMountDir",
    ] {
        if input.take(key).is_some() {
            release.note(key, START_SCRIPT);
        }
    }
    let variables = input.take("bootstrapEnv");
    let variables = variables.as_ref().and_then(Value::as_object);
    for (name, _) in variables.into_iter().flatten() {
        // That one is a token, and read as one.
        if name != "ZITI_ENROLL_TOKEN" {
            release.note(&format!("bootstrapEnv.{name}"), START_SCRIPT);
        }
    }
    for key in ["nameOverride", "fullnameOverride"] {
        if input.take(key).is_some() {
            release.note(
                key,
                "not carried over: --name is the name of the ZitiRouter",
            );
        }
    }
    // There are none.
    input.take("noHelmHooks");
}

/// `env`.
fn environment(release: &mut Release, input: &mut Input) {
    let Some(Value::Object(given)) = input.take("env") else {
        return;
    };
    let mut env = Map::new();
    for (name, value) in given {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        if text.contains('$') || ["ZITI_MEMBER", "NODE_NAME", "HOST_IP"].contains(&name.as_str()) {
            let key = format!("env.{name}");
            release.note(
                &key,
                "not carried over: values hold no $, which the router and the kubelet would \
                    both replace, and ZITI_MEMBER, NODE_NAME and HOST_IP are the operator's",
            );
        } else {
            env.insert(name, text.into());
        }
    }
    if !env.is_empty() {
        release.pod("env", env);
    }
}

/// `additionalVolumes`.
fn volumes(release: &mut Release, input: &mut Input) {
    let listed = input.take("additionalVolumes");
    let mut volumes = Vec::new();
    for volume in listed
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |key: &str| volume[key].as_str().unwrap_or_default();
        let (name, path) = (text("name"), text("mountPath"));
        let taken = |dir: &&str| {
            path.strip_prefix(dir)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let why = match text("volumeType") {
            "configMap" => TAKEN.into_iter().find(taken).map(|dir| {
                format!(
                    "{name} is not carried over: nothing can be mounted in {dir}, which the \
                        router and the operator use themselves"
                )
            }),
            "secret" => Some(format!(
                "{name} is not carried over: whoever may write a ZitiRouter could read \
                        any Secret of the namespace by it"
            )),
            other => Some(format!(
                "{name} is not carried over: only ConfigMaps are mounted, and this is of type \
                    {other}"
            )),
        };
        match why {
            Some(why) => release.note("additionalVolumes", why),
            None => volumes.push(json!({"name": name, "mountPath": path, "configMap": {"name": text("configMapName")}})),
        }
    }
    if !volumes.is_empty() {
        release.pod("extraVolumes", volumes);
    }
}

/// `podSecurityContext` and `securityContext`.
fn contexts(release: &mut Release, input: &mut Input, mode: &str) {
    const OWN: &str = "not carried over: the pod keeps the restricted Pod Security Standard, and mode \
            tproxy has what it needs by itself";
    let mut groups = Map::new();
    if let Some(Value::Object(given)) = input.take("podSecurityContext") {
        for (key, value) in given {
            match key.as_str() {
                "fsGroup" if value == GROUP => {}
                "fsGroup" | "supplementalGroups" => {
                    groups.insert(key, value);
                }
                _ => release.note(&format!("podSecurityContext.{key}"), OWN),
            }
        }
    }
    if !groups.is_empty() {
        release.pod("securityContext", groups);
    }
    let Some(Value::Object(given)) = input.take("securityContext") else {
        return;
    };
    for (key, value) in given {
        let added = value["add"].as_array().cloned().unwrap_or_default();
        let by_mode =
            |capability: &Value| capability == "NET_ADMIN" || capability == "NET_BIND_SERVICE";
        let is_own = mode == "tproxy" && key == "capabilities" && added.iter().all(by_mode);
        if !is_own {
            release.note(&format!("securityContext.{key}"), OWN);
        }
    }
}

/// `persistence`.
pub(super) fn storage(release: &mut Release, input: &mut Input) {
    let mut claim = Map::new();
    if let Some(size) = input.text("persistence.size") {
        claim.insert("size".to_owned(), size.into());
    }
    if let Some(class) = input.text("persistence.storageClass") {
        // As the chart has it: a dash is a class without a name.
        let class = if class == "-" { String::new() } else { class };
        claim.insert("storageClassName".to_owned(), class.into());
    }
    if input.switch("persistence.enabled") == Some(false) {
        release.set("identityStorage", json!({"ephemeral": {}}));
        release.note(
            "persistence.enabled",
            "becomes identityStorage.ephemeral: each new pod enrolls again as the same router. The operator needs a credential for \
             the network, or you give a new token each time",
        );
    } else if !claim.is_empty() {
        release.set("identityStorage", json!({"persistentVolumeClaim": claim}));
    }
    if input
        .text("persistence.accessMode")
        .is_some_and(|mode| mode != "ReadWriteOnce")
    {
        release.note(
            "persistence.accessMode",
            "not carried over: one pod has the volume, ReadWriteOnce",
        );
    }
    for key in ["existingClaim", "volumeName"] {
        let path = format!("persistence.{key}");
        if input.text(&path).is_some() {
            release.note(
                &path,
                "not carried over: a volume with an identity is taken over by `ziti-operator \
                    adopt`",
            );
        }
    }
    if input.take("persistence.annotations").is_some() {
        release.note(
            "persistence.annotations",
            "not carried over: there is no such setting of a claim",
        );
    }
}
