# One application with its SQLite database on LiteFS, on three hosts: it runs on the primary, the other two are ready to take
# over, and Consul knows the primary alone. See docs/guides/supervisor.md.
#
#   nomad job run deploy/nomad/music.nomad.hcl
#
# There is no `service` block: Nomad would register all three.
job "music" {
  type = "service"

  group "music" {
    count = 3

    # Two of them on one host would be no help when it dies.
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    # One after the other; the new one must be up (a replica is) before the next is replaced.
    update {
      max_parallel     = 1
      health_check     = "task_states"
      min_healthy_time = "20s"
    }

    # A command that fails ends the allocation with its exit code, and this decides what comes of it.
    restart {
      attempts = 5
      interval = "5m"
      delay    = "5s"
      mode     = "delay"
    }

    network {
      mode = "host"
      port "http" {}
      port "litefs" {
        static = 20202
      }
    }

    volume "music" {
      type   = "host"
      source = "music"
    }

    task "music" {
      driver = "docker"

      # More than the stop budget of `tenure run` (4.5 s), which fits into Nomad's default of 5 s as well.
      kill_timeout = "10s"

      config {
        image        = "music:1"
        network_mode = "host"
        # What mounting takes.
        privileged = true
        devices = [
          { host_path = "/dev/fuse", container_path = "/dev/fuse" },
        ]
      }

      volume_mount {
        volume      = "music"
        destination = "/var/lib/music"
      }

      env {
        # The agent of this host: where the service is registered.
        CONSUL_HTTP_ADDR = "127.0.0.1:8500"
        # With a store, the service of a supervisor that was killed is gone ttl + 5 s later instead of after a minute or more.
        # The others have to reach the agent then, so it is named by an address of the host, which is on their list:
        # CONSUL_HTTP_ADDR            = "${attr.unique.network.ip-address}:8500"
        # TENURE_REGISTRATIONS_AGENTS = "10.0.0.0/8"
        # TENURE_STORE                = "http://tenure.internal:7717"
      }

      # A token that may register the service, and is renewed by Nomad. It is read again whenever it has changed.
      # env { CONSUL_HTTP_TOKEN_FILE = "${NOMAD_SECRETS_DIR}/consul_token" }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
