import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.connect.mirror.MirrorClient;

/** Prints how many hops away a cluster is, and all clusters upstream, as MirrorMaker 2's own client sees them. */
public class Mirrors {
    public static void main(String[] words) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", words[0]);
        try (MirrorClient client = new MirrorClient(properties)) {
            System.out.println(client.replicationHops(words[1]));
            System.out.println(String.join(",", new TreeSet<>(client.upstreamClusters())));
        }
    }
}
