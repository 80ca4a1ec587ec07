//! Which of a network's controllers is to be talked to.
//!
//! In a cluster that is the leader: each controller makes enrollment tokens of its own, and only
//! the leader's are good in all cases; a write at another one takes ten times as long; and what
//! was written elsewhere is seen late. Used by the operator, which asks the controllers and turns
//! to the one chosen here.

use crate::edge_router::Problem;
use api::reasons;
use api::ziti_network::ControllerStatus;

/// A controller, as the leader sees it, or another one while there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// Where its control plane is, `tls:host:port`.
    pub address: String,
    /// Whether it leads.
    pub leader: bool,
    /// Its version, while it is connected.
    pub version: Option<String>,
}

impl Member {
    /// Its id and where it is, for a person.
    pub fn told(&self) -> String {
        format!("{} ({})", self.id, self.address)
    }
}

/// One of `spec.managementApi`, `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub url: String,
    /// Which member answers there, where that is known.
    pub member: Option<String>,
}

/// Where the leader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leading<'a> {
    /// There is one controller, so whoever answers is it.
    Alone,
    /// At this endpoint.
    At(&'a str),
    /// At none of the endpoints, as far as is known.
    Elsewhere(&'a Member),
    /// Nobody leads: an election is under way, or the quorum is lost.
    Nobody,
}

/// Find the leader among the endpoints: by host and port, since control plane and management API
/// mostly share them, else by which member is known to answer.
pub fn leading<'a>(members: &'a [Member], endpoints: &'a [Endpoint]) -> Leading<'a> {
    let Some(leader) = members.iter().find(|member| member.leader) else {
        return Leading::Nobody;
    };
    if members.len() == 1 {
        return Leading::Alone;
    }
    let at_address = |endpoint: &&Endpoint| {
        let leaders = host_and_port(&leader.address);
        leaders.is_some() && host_and_port(&endpoint.url) == leaders
    };
    let by_member = |endpoint: &&Endpoint| endpoint.member.as_ref() == Some(&leader.id);
    let found = endpoints.iter().find(by_member);
    match found.or_else(|| endpoints.iter().find(at_address)) {
        Some(endpoint) => Leading::At(&endpoint.url),
        None => Leading::Elsewhere(leader),
    }
}

/// Two members that are connected and run different versions: while there are such, as in the
/// middle of an upgrade, the cluster takes no writes.
fn differ(members: &[Member]) -> Option<(&Member, &Member)> {
    let mut known = members.iter().filter(|member| member.version.is_some());
    let first = known.next()?;
    let other = known.find(|member| member.version != first.version)?;
    Some((first, other))
}

/// Why nothing is to be written to a cluster in the middle of an upgrade.
pub fn mixed(members: &[Member]) -> Option<Problem> {
    let (one, other) = differ(members)?;
    let version = |member: &Member| member.version.clone().unwrap_or_default();
    let message = format!(
        "{} runs {} and {} {}: a cluster takes no writes while its members run different versions, so none are tried. Finish the upgrade",
        one.id,
        version(one),
        other.id,
        version(other)
    );
    Some(Problem::new(reasons::VERSIONS_DIFFER, message))
}

/// What is told of the controllers, in an order that stays.
pub fn status(members: &[Member]) -> Vec<ControllerStatus> {
    let mut told: Vec<ControllerStatus> = members
        .iter()
        .map(|member| ControllerStatus {
            id: member.id.clone(),
            address: member.address.clone(),
            leader: member.leader,
            version: member.version.clone(),
        })
        .collect();
    told.sort_by(|a, b| a.id.cmp(&b.id));
    told
}

/// Host, in lowercase, and port of `tls:host:port` or `https://host:port`.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let rest = address
        .strip_prefix("tls:")
        .or_else(|| address.strip_prefix("https://"))?;
    let rest = rest.trim_start_matches('/').trim_end_matches('/');
    match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            Some((host.to_lowercase(), port.parse().ok()?))
        }
        // A URL may leave it out.
        _ => Some((rest.to_lowercase(), 443)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, leader: bool) -> Member {
        Member {
            id: id.to_owned(),
            address: format!("tls:{id}.ns.svc:1280"),
            leader,
            version: None,
        }
    }

    fn endpoint(url: &str, member: Option<&str>) -> Endpoint {
        Endpoint {
            url: url.to_owned(),
            member: member.map(str::to_owned),
        }
    }

    #[test]
    fn the_leader_is_found_by_its_address() {
        let members = [member("c-0", false), member("c-1", true)];
        let endpoints = [
            endpoint("https://c-0.ns.svc:1280", None),
            endpoint("https://C-1.ns.svc:1280", None),
        ];
        let at = leading(&members, &endpoints);
        assert_eq!(at, Leading::At("https://C-1.ns.svc:1280"));
    }

    #[test]
    fn a_cluster_in_the_middle_of_an_upgrade_is_known_by_its_versions() {
        let at = |version: Option<&str>| Member {
            version: version.map(str::to_owned),
            ..member("c-0", false)
        };
        let versions = |of: [Option<&str>; 3]| differ(&of.map(at)).is_some();
        assert!(!versions([Some("v1.6.0"), None, Some("v1.6.0")]));
        assert!(versions([None, Some("v1.6.0"), Some("v2.0.3")]));
    }

    #[test]
    fn one_that_is_reached_elsewhere_is_found_by_who_answers_and_else_named() {
        let members = [member("c-0", false), member("c-1", true)];
        let outside = "https://ziti.example:8441";
        let unknown = [endpoint(outside, None)];
        assert_eq!(leading(&members, &unknown), Leading::Elsewhere(&members[1]));
        // Who answers is proven; that an address is the same on both sides is not.
        let known = [
            endpoint("https://c-1.ns.svc:1280", Some("c-0")),
            endpoint(outside, Some("c-1")),
        ];
        assert_eq!(leading(&members, &known), Leading::At(outside));
    }

    #[test]
    fn a_cluster_of_one_is_wherever_it_answers_and_without_a_leader_nobody_leads() {
        let endpoints = [endpoint("https://ziti.example", None)];
        assert_eq!(leading(&[member("c-0", true)], &endpoints), Leading::Alone);
        let members = [member("c-0", false), member("c-1", false)];
        assert_eq!(leading(&members, &endpoints), Leading::Nobody);
        assert_eq!(leading(&[], &endpoints), Leading::Nobody);
    }

    #[test]
    fn addresses_of_both_forms_are_read() {
        let read = |text| host_and_port(text);
        assert_eq!(read("tls:a:1"), Some(("a".to_owned(), 1)));
        assert_eq!(read("https://A/"), Some(("a".to_owned(), 443)));
        assert_eq!(
            read("https://[fd00::1]"),
            Some(("[fd00::1]".to_owned(), 443))
        );
        assert_eq!(read("tls:[fd00::1]:7"), Some(("[fd00::1]".to_owned(), 7)));
        assert_eq!(read("a:1"), None);
        assert_eq!(read("tls:a:x"), None);
    }

    #[test]
    fn the_order_of_the_controllers_stays() {
        let one = [member("b", true), member("a", false)];
        let other = [member("a", false), member("b", true)];
        assert_eq!(status(&one), status(&other));
    }
}
