import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node on this machine, until standard input ends. Argument: its folder. */
public class SmallCluster {
  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    configuration.set("hdfs.minidfs.basedir", arguments[0]);
    configuration.set("dfs.namenode.rpc-bind-host", "127.0.0.1");
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
    cluster.waitActive();
    System.out.println("at " + cluster.getURI());
    System.in.read();
    cluster.shutdown();
  }
}
